"""Waits until a host has booted again.

Ansible's reboot action restarts the host itself, and wait_for_connection accepts a host that has
not gone down yet. Here the BMC restarts the host, and only a new boot id proves the restart.
"""

from __future__ import annotations

import time
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase

BOOT_IDENTITY = "/proc/sys/kernel/random/boot_id"
# Much shorter than a boot, and much longer than an attempt.
PAUSE_SECONDS = 3


class ActionModule(ActionBase):
    """Reads the boot id over a new connection each time, until it has changed.

    Arguments of the task:
        other_than: the boot id before the restart.
        seconds: how long to wait at most.

    Result:
        booted: whether the host booted in time.
        seconds: seconds until the new boot id was read.
        last: result of the last attempt, in words.
    """

    _requires_connection = False

    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Wait for a new boot id and return the result that the class describes."""
        result = super().run(tmp, task_vars)
        former = self._task.args["other_than"]
        begin = time.monotonic()
        deadline = begin + float(self._task.args["seconds"])
        while True:
            boot, last = self._boot_identity()
            booted = bool(boot) and boot != former
            now = time.monotonic()
            if booted or now + PAUSE_SECONDS > deadline:
                last = last or "it is still in the same boot"
                return {**result, "booted": booted, "seconds": round(now - begin), "last": last}
            time.sleep(PAUSE_SECONDS)

    def _boot_identity(self) -> tuple[str, str]:
        """Return the host's boot id and "", or "" and the reason why it cannot be read."""
        try:
            # A connection kept from before the reboot would hang.
            self._connection.reset()
            answer = self._low_level_execute_command(f"cat {BOOT_IDENTITY}", sudoable=False)
        except (AnsibleConnectionFailure, OSError) as error:
            return "", str(error)
        if answer["rc"] != 0:
            return "", f"reading it failed: {answer['stderr'].strip()}"
        return answer["stdout"].strip(), ""
