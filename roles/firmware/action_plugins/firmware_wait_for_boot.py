"""Waits until a host has booted again.

Ansible's own reboot action restarts the host itself, and wait_for_connection is content with a host
that has not gone down yet. Here the BMC restarts it, and only another boot identity counts.
"""

from __future__ import annotations

import time
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase

BOOT_IDENTITY = "/proc/sys/kernel/random/boot_id"
# Short against any boot, long against what an attempt costs the controller.
PAUSE_SECONDS = 3


class ActionModule(ActionBase):
    """Reads the boot identity over a new connection each time, until it is another one.

    Arguments of the task:
        other_than: the boot identity before.
        seconds: how long to wait at most.

    Result:
        booted: whether the host came back in time; the caller says what it means that it did not.
        seconds: how long it took.
        last: what the last attempt found.
    """

    _requires_connection = False

    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Wait for another boot id; see the class."""
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
        """The host's boot id and "", or "" and the reason why it cannot be read."""
        try:
            # A connection kept from before the reboot would hang.
            self._connection.reset()
            answer = self._low_level_execute_command(f"cat {BOOT_IDENTITY}", sudoable=False)
        except (AnsibleConnectionFailure, OSError) as error:
            return "", str(error)
        if answer["rc"] != 0:
            return "", f"reading it failed: {answer['stderr'].strip()}"
        return answer["stdout"].strip(), ""
