"""Read from the command line the Snakemake options that change how the rules are read.

Snakemake has no documented way to give its options to the rules, so the command line is read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from chaosity.errors import UserError

# Options of one letter and without a value can be joined, as in -np.
_SHORT_DRY_RUN = re.compile(r"-[eFRkpqnS]*n")
_SHORT_FORCE_ALL = re.compile(r"-[eFRkpqnS]*F")
# With these options, Snakemake only lists or checks rules, and needs neither hosts nor tools.
_READ_RULES = {"--lint", "--list", "--list-rules", "-l", "--list-target-rules", "--lt"}
# With these options, Snakemake makes no file of the workflow.
_WRITE_NOTHING = {
    *("--dry-run", "--dryrun", "--report", "--summary", "-S", "--detailed-summary", "-D"),
    *("--dag", "--rulegraph", "--filegraph", "--d3dag"),
}
# With these options, Snakemake has to know all jobs at the start, but checkpoints add more jobs.
_NEED_ALL_JOBS = {
    **dict.fromkeys(("--until", "-U"), "ends after jobs"),
    **dict.fromkeys(("--touch", "-t"), "marks jobs"),
    "--batch": "divides jobs",
}


class CommandLine(NamedTuple):
    """The words of Snakemake's command line, after the name of the program."""

    words: Sequence[str] = ()

    @property
    def only_reads_rules(self) -> bool:
        """Return whether Snakemake only reads the rules."""
        return self._has(_READ_RULES)

    @property
    def writes_nothing(self) -> bool:
        """Return whether this is a command that writes no results: a dry run, a report, a graph."""
        return self._has(_WRITE_NOTHING) or any(map(_SHORT_DRY_RUN.match, self.words))

    @property
    def is_of_snakemake_job(self) -> bool:
        """Return whether Snakemake, and not a person, started this process, for one of its jobs."""
        return "--mode" in self.words

    @property
    def repeats_measurements(self) -> bool:
        """Return whether options force measurements again that already have a record."""
        rules = {"-R", "--forcerun", "--force", "-f"}
        named = self._has(rules) and any("measure" in word for word in self.words)
        return named or self._has({"--forceall"}) or any(map(_SHORT_FORCE_ALL.match, self.words))

    def refuse_options_that_need_all_jobs(self, key: str) -> None:
        """Refuse options that need all jobs at the start; `key` of the config adds jobs later.

        Raises:
            UserError: one of these options is given.
        """
        for option, does in _NEED_ALL_JOBS.items():
            if self._has({option}):
                what = f"it {does} that are known at the start, but with {key} more jobs follow"
                remedy = f"leave out {option} or {key}, or name a target such as measurements"
                raise UserError(what, f"option {option}", remedy)

    def _has(self, options: set[str]) -> bool:
        return any(word.partition("=")[0] in options for word in self.words)
