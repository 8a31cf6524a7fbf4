"""What a run of the workflow knows: hosts, their plans, and what was measured before.

Snakemake reads the workflow once in the process that a person started and again in jobs that run
elsewhere. Only the first discovers and locks; the others read what it wrote down.
"""

from __future__ import annotations

import fcntl
import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from chaosity.campaign.measured_weights import MeasuredWeights
from chaosity.config import check_config
from chaosity.design import HostPlan, PlannedHost, plan_host, replicate_numbers
from chaosity.errors import UserError
from chaosity.hosts import discover_hosts, read_discovered_hosts
from chaosity.topology import LIVE

T = TypeVar("T")


def checked_or_exit(make: Callable[[], T]) -> T:
    """What `make` gives; an error for the user becomes one sentence and exit status 2."""
    try:
        return make()
    except UserError as error:
        print(f"chaosity: {error}", file=sys.stderr)
        sys.exit(2)


def resource_name(host: str) -> str:
    """The Snakemake resource that keeps measurements of a host apart."""
    return "measuring_" + re.sub(r"\W", "_", host)


def use_own_programs(root: Path) -> None:
    """Let this installation's programs come first, whatever else is on the search path.

    Rules call `chaosity` and `snakemake`, and measurements the kernels that provisioning built.
    """
    own = [str(root / "build" / "kernels"), str(Path(sys.executable).parent)]
    given = os.environ.get("PATH", os.defpath).split(os.pathsep)
    os.environ["PATH"] = os.pathsep.join([*own, *(one for one in given if one not in own)])


class Campaign:
    """Hosts, plans and records of one run.

    Args:
        config: the merged config, as Snakemake has it.
        root: the repository.
        discover: whether this process may look at hosts; else the last discovery is read.

    Raises:
        UserError: config, inventory or a host is not as it should be.
    """

    # The campaign of this process, for the progress line, which Snakemake makes by itself.
    current: ClassVar[Campaign | None] = None

    def __init__(
        self,
        config: Mapping[str, Any],
        *,
        root: Path,
        discover: bool = True,
    ) -> None:
        self.config = check_config(config)
        self.results = Path(self.config["results"])
        use_own_programs(root)
        self.left_out: list[UserError] = []
        if discover:
            found, self.left_out = discover_hosts(self.config)
            for error in self.left_out:
                print(f"chaosity: {error} It is left out of this run.", file=sys.stderr)
        else:
            found = read_discovered_hosts(self.config)
        # Weights belong to the process that discovers, too; the others plan by what it kept.
        weights = {
            host.name: MeasuredWeights(self.results / host.name / host.configuration, anew=discover)
            for host in found
        }
        self.plans: dict[str, HostPlan] = {
            host.name: plan_host(host, self.config, weights=weights[host.name]) for host in found
        }
        self._index = {
            (plan.host.name, point["experiment"], point["point"]): point
            for plan in self.plans.values()
            for point in plan.points
        }
        self._failures: dict[str, list[str]] = {}
        Campaign.current = self
        if discover:
            for name, plan in self.plans.items():
                weights[name].write()
                plan.write(self.folder(name), points=False)

    def begin(self) -> None:
        """Get ready to measure, once it is known that this is no dry run.

        Raises:
            UserError: a host cannot be measured, or another run is at work.
        """
        for name, host in self.hosts.items():
            if host.topology.kind != LIVE:
                raise UserError(
                    "its topology is a file, so it can be planned but not measured",
                    f"host {name}",
                    "use snakemake --dry-run, or leave it out by `hosts` in the config",
                )
        self.locks = [alone(self.results / name) for name in self.plans]
        for name, plan in self.plans.items():
            plan.write(self.folder(name), points=True)

    def end(self) -> None:
        """Say which hosts were left out, once all else has been done.

        Raises:
            UserError: some were, so the run did not do all that it was asked to.
        """
        if self.left_out:
            raise UserError(
                f"{len(self.left_out)} of {len(self.left_out) + len(self.plans)} hosts were left"
                f" out: {' '.join(str(error) for error in self.left_out)}",
                remedy="their points are left for the next run",
            )

    @property
    def hosts(self) -> dict[str, PlannedHost]:
        """The hosts by name."""
        return {name: plan.host for name, plan in self.plans.items()}

    @property
    def resources(self) -> dict[str, int | Callable[[Any], int]]:
        """For each host a resource that its measurements take one of."""
        if len(self.hosts) == 1:  # a function costs time for each of ten thousand jobs
            return {resource_name(next(iter(self.hosts))): 1}

        def taken(name: str) -> Callable[[Any], int]:
            return lambda wildcards: int(wildcards.host == name)

        return {resource_name(name): taken(name) for name in self.hosts}

    def limit(self, limits: Mapping[str, Any], register: Callable[[str, int], None]) -> None:
        """Let one measurement run at a time on each host.

        Snakemake ignores a resource that has no limit, silently.

        Args:
            limits: limits of Snakemake's resources.
            register: sets one.

        Raises:
            UserError: a person gave the resource of a host another limit.
        """
        for name in self.hosts:
            resource = resource_name(name)
            if resource not in limits:
                register(resource, 1)
            elif limits[resource].value != 1:
                raise UserError(
                    f"measurements of {name} could run at the same time",
                    f"resources, {resource}",
                    "leave it out or give it the limit 1",
                )

    @property
    def slots(self) -> int | Callable[[Any], int]:
        """Cores of this machine that a measurement takes: none on another host, it only waits."""
        if all(host.local for host in self.hosts.values()):  # no function, see `resources`
            return 1
        return lambda wildcards: int(self.plans[wildcards.host].host.local)

    def point(self, host: str, experiment: str, name: str) -> dict[str, Any]:
        """A planned point."""
        return self._index[(host, experiment, name)]

    def folder(self, host: str) -> Path:
        """Where a host's files for its present configuration are."""
        return self.results / host / self.hosts[host].configuration

    def failures(self, wildcards: Any) -> int:
        """Number of failed attempts of a replicate so far."""
        # Text instead of paths: this is asked for each of ten thousand jobs.
        folder = (
            f"{self.results}/{wildcards.host}/{wildcards.configuration}/{wildcards.experiment}"
            f"/{wildcards.point}/attempts"
        )
        if folder not in self._failures:
            names = os.listdir(folder) if os.path.isdir(folder) else []  # noqa: PTH112, PTH208
            self._failures[folder] = [name for name in names if name.endswith(".failed.json")]
        prefix = f"rep{wildcards.replicate}."
        return sum(1 for name in self._failures[folder] if name.startswith(prefix))

    def records(self, host: str) -> list[str]:
        """Paths of all records that a host's plan asks for."""
        folder = self.folder(host)
        return [
            f"{folder}/{point['experiment']}/{point['point']}/rep{replicate}.json"
            for point in self.plans[host].points
            for replicate in replicate_numbers(point)
        ]


def alone(results: Path) -> int:
    """Hold a lock on a host's results, so that two runs do not write the same records.

    The kernel frees it when the process ends, however it ends, so that nothing must be unlocked
    after a crash (Snakemake's own lock must; profiles/default turns it off).

    Raises:
        UserError: another run is at work.
    """
    results.mkdir(parents=True, exist_ok=True)
    handle = os.open(results / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = os.read(handle, 20).decode().strip()
        os.close(handle)
        raise UserError(
            f"another run (process {pid}) writes here", str(results), "wait for it or stop it"
        ) from None
    os.ftruncate(handle, 0)
    os.write(handle, str(os.getpid()).encode())
    return handle
