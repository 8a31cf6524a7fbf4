"""``chaosity check`` compares a host with its map; ``history`` says since when it is slower."""

from __future__ import annotations

import shlex
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from chaosity.cli.shared import (
    FILE,
    JSON_OPTION,
    RESULTS_FOLDER,
    echo,
    print_json,
    print_line,
    print_table,
    print_that_nothing_was_measured,
    print_that_results_are_unusable,
    refuse_options_without_effect,
)
from chaosity.errors import UserError, file_system_error
from chaosity.result_folders import path_argument
from chaosity.units import format_count, format_quantity, metric_in_words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from chaosity.health.check_history import CheckHistory, ValueSeries
    from chaosity.health.check_host import HostCheck, HostCheckResult
    from chaosity.health.check_points import CheckedValue, Suspect


# Exit status of a check without a result. The statuses 0, 1 and 2 mean fine, warning and fault.
STATUS_OF_NO_CHECK = 3


class _CheckCommand(click.Command):
    """A command that exits with `STATUS_OF_NO_CHECK` for wrong arguments; 2 means a fault."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; if they are wrong, end with the status `STATUS_OF_NO_CHECK`."""
        with _end_as_not_checked_on_failure():
            return super().parse_args(ctx, args)


@click.command("check", cls=_CheckCommand)
@click.argument("folder", type=RESULTS_FOLDER)
@click.option(
    "--seconds",
    type=click.FloatRange(min=2.0),
    default=50.0,
    show_default=True,
    help="Longest time of the check. The next check measures the points that do not fit.",
)
@click.option(
    "--textfile",
    type=FILE,
    help="Also write the result to this .prom file, for node_exporter's textfile collector.",
)
@click.option(
    "--ignore-load", is_flag=True, help="Check the host also while other programs use it."
)
@click.option(
    "--without-equal-hosts",
    is_flag=True,
    help="Do not compare with checks of equal hosts, since this host is built differently.",
)
@click.option("--all", "print_all", is_flag=True, help="Print all values.")
@click.option("--dry-run", is_flag=True, help="Print what the check would measure.")
@JSON_OPTION
def check_command(
    folder: Path,
    seconds: float,
    textfile: Path | None,
    ignore_load: bool,
    without_equal_hosts: bool,
    print_all: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Measure a host for less than a minute and compare it with its map.

    FOLDER is results/HOST/CONFIGURATION, the results of an earlier run. The check measures the
    points that show a fault of a single component best: the memory of each node, each drive, and
    the paths between packages. A point with a slow value is measured again until other programs
    disturbed none of three measurements, but at most six times in all. If results/ has at least
    four other hosts with the same processor and configuration, the recent checks of all these hosts
    are compared too. The command writes values to checks.csv and raw records to checks/ in FOLDER.

    Exit status: 0 as good as the map, 1 warning, 2 fault, 3 not checked, for example because
    somebody works on the host.

    Example: chaosity check results/demo/paper_server
    """
    from chaosity.health.check_host import HostCheck

    with _end_as_not_checked_on_failure():
        if dry_run:
            options = ("seconds", "textfile", "print_all", "as_json", "ignore_load")
            refuse_options_without_effect("with --dry-run", *options)
        if textfile and textfile.suffix != ".prom":
            raise UserError("node_exporter reads only files that end in .prom", str(textfile))
        try:
            check = HostCheck(folder, with_equal_hosts=not without_equal_hosts)
            if dry_run:
                _print_plan(check)
                return
            result = check.run(seconds, _show_progress, ignore_load=ignore_load)
        finally:
            _show_progress("")
        if textfile:
            from chaosity.export.formats import write_gauges

            write_gauges("chaosity_check", result.gauges(time.time()), textfile)
        if as_json:
            print_json(_check_result_document(result))
        else:
            found, unusable = _findings_of_the_map(folder)
            print_check_result(
                result, print_all=print_all, map_findings_clause=found, unusable=unusable
            )
    sys.exit(result.status)


def _print_plan(check: HostCheck) -> None:
    """Print what a check would measure."""
    rows = [
        ("->".join(each.parts), "/".join(each.key), f"{each.seconds:.1f}") for each in check.points
    ]
    print_table(rows, ["component", "point"], ["s"])
    if check.unreadable:
        them = "them" if len(check.unreadable) > 1 else "it"
        files = ", ".join(check.unreadable)
        print_line(f"This user may not read {files}, so the check leaves {them} out.")
    _print_missing_experiments(check.host["host"], check.missing_experiments)
    total = sum(each.seconds for each in check.points)
    print_line(f"{format_count(len(check.points), 'point')}, about {total:.0f} s.")


def _print_missing_experiments(host: str, missing: Mapping[str, str]) -> None:
    """Print which experiments the map lacks; each line begins with the name of the host."""
    for experiment, unseen in missing.items():
        print_line(
            f"{host}: the map has no value of {experiment}, so the check does not see {unseen}: "
            f"add {experiment} to the experiments of the config and measure the host again."
        )


def _findings_of_the_map(folder: Path) -> tuple[str, str]:
    """Return a clause on the findings in the map of a check, and why the map is unusable.

    The clause is empty if the map has no findings. The reason is empty if the map is usable. A
    check does not report a component that was slow in the map already, so the clause reports it.
    """
    from chaosity.report.measured_run import read_findings

    file = folder / "findings.json"
    try:
        found = read_findings(file) if file.exists() else None
    except UserError:  # the check needs no findings
        found = None
    if found is None or not found.anomalies:
        return "", found.unusable if found else ""
    findings = format_count(len(found.anomalies), "finding")
    command = shlex.join(["chaosity", "anomalies", path_argument(folder)])
    clause = f", but the map itself has {findings}: {command}"
    return clause, found.unusable


def print_check_result(
    result: HostCheckResult, *, print_all: bool, map_findings_clause: str = "", unusable: str = ""
) -> None:
    """Print a line for each suspected component that says what is wrong and what to do.

    Args:
        result: the result of the check.
        print_all: whether to print all values too.
        map_findings_clause: a clause on the findings in the map; empty without findings.
        unusable: why the map is unusable; empty if it is usable.
    """
    host = result.host
    if result.is_simulated:
        print_that_nothing_was_measured()
    for suspect in result.suspects:
        print_line(f"{host}: {_suspect_text(suspect)}.")
    if not result.suspects and not result.failed:
        number = format_count(len(result.values), "value")
        # A host is not called fine if its map has findings or is unusable.
        state = "no change" if map_findings_clause or unusable else "fine"
        none_is_worse = f"none of {number} is worse than in the map{map_findings_clause or '.'}"
        print_line(f"{host}: {state}: {none_is_worse}")
    print_that_results_are_unusable(unusable)
    for place, reason in result.failed.items():
        print_line(f"{host}: warning [node_problem] {place} has no valid value: {reason}.")
    if result.unreadable:
        them = "them" if len(result.unreadable) > 1 else "it"
        files = ", ".join(result.unreadable)
        print_line(f"{host}: this user may not read {files}, so the check left {them} out.")
    _print_missing_experiments(host, result.missing_experiments)
    limits = [f"{100 * limit:.1f}" for limit in sorted(each.limit for each in result.values)]
    ends = " to ".join(dict.fromkeys((limits[0], limits[-1]) if limits else ()))
    by_value = ", depending on the value" * (" " in ends)
    print_line(
        f"{result.seconds:.0f} s. The smallest loss that would be reported is {ends} %{by_value}."
    )
    if result.left_for_next_check:
        left = format_count(len(result.left_for_next_check), "point")
        print_line(f"{left} did not fit into the time and will be measured by the next check.")
    if print_all:
        print_table(
            [
                (
                    *("->".join(each.check.parts), "/".join(each.check.key)),
                    *(format_quantity(each.check.metric, x) for x in (each.value, each.expected)),
                    *(f"{100 * share:.1f} %" for share in (each.tonight.loss, each.limit)),
                )
                for each in result.values
            ],
            ["component", "point"],
            ["value", "expected", "loss", "would be reported"],
        )


def _suspect_text(suspect: Suspect) -> str:
    """Return a text on what is wrong with a suspected component, and on what to do."""
    from chaosity.health.check_points import RECENT

    worst, parts = suspect.values[0], suspect.parts
    drives = worst.check.load["target"]["drives"]
    if worst.disturbed:
        remedy = "check the host again when nobody works on it"
    elif worst.hypervisor_may_explain:
        remedy = "look first at what else runs on the processors of this virtual machine"
    elif not parts:
        remedy = "look for other programs, power, cooling and clock settings"
    elif drives and "pci" in drives[0]:
        remedy = "look at the health and link of the drive (nvme smart-log, lspci -vv)"
    elif drives:
        remedy = "look at the health and the link of the drive (smartctl, dmesg)"
    elif len(parts) > 1:
        remedy = "look at the link between the nodes"
    else:
        remedy = "look at the node's memory modules and at the clock of its cores"
    seen, usual = (format_quantity(worst.check.metric, x) for x in (worst.value, worst.expected))
    if worst.tonight.is_clear:
        how = f"{100 * worst.tonight.loss:.0f} % worse than in the map, {seen} instead of {usual}"
        how += f", {len(worst.values)} measured"
    elif worst.recent.is_clear:
        how = f"{100 * worst.recent.loss:.1f} % worse in the last {RECENT} checks than in the first"
        how += " checks after the map"
    else:
        how = f"{100 * worst.equals.loss:.1f} % worse than in the recent checks of"
        how += f" {worst.equals.hosts} equal hosts, already in the map"
    kind = "fault" if worst.is_fault else "warning"
    whose = "[user_problem]" if worst.disturbed else "[node_problem]"
    name = "->".join(parts) or "most parts"
    return f"{kind} {whose} {name}: {how} ({'/'.join(worst.check.key)}); {remedy}"


@contextmanager
def _end_as_not_checked_on_failure() -> Iterator[None]:
    """End with the status `STATUS_OF_NO_CHECK` if the check itself fails.

    Other commands that fail exit with 1 or 2. The statuses 1 and 2 of a check mean a warning and a
    fault of the host.
    """
    try:
        yield
    except (BrokenPipeError, click.exceptions.Exit):
        raise  # the reader of the output has ended, or the option was --help
    except click.UsageError as error:
        error.show()
    except (UserError, OSError) as error:
        sentence = (file_system_error(error) if isinstance(error, OSError) else None) or error
        echo(f"chaosity: not checked: {sentence}", err=True)
    except Exception:
        traceback.print_exc()
    else:
        return
    sys.exit(STATUS_OF_NO_CHECK)


def _show_progress(point: str) -> None:
    """Show on a terminal which point is measured now; an empty `point` removes the text."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{point}")
        sys.stderr.flush()


def _check_result_document(result: HostCheckResult) -> dict[str, Any]:
    """Return the result of a check as the document that ``--json`` prints."""

    def value(each: CheckedValue) -> dict[str, Any]:
        experiment, point = each.check.key
        return {
            **{"experiment": experiment, "point": point, "metric": each.check.metric},
            **{"components": each.check.parts, "values": each.values, "expected": each.expected},
            **{"loss": each.tonight.loss, "clear_loss": each.limit},
            **{"clear": each.tonight.is_clear, "recent_loss": each.recent.loss},
            **{"slow": bool(each.clear_losses), "equal_hosts": each.equals.hosts},
            "loss_to_equal_hosts": each.equals.loss,
            **{"confirmed": each.is_confirmed, "disturbed": each.disturbed},
        }

    facts = ("host", "moment", "seconds", "failed", "unreadable", "is_simulated")
    return {
        **{name: getattr(result, name) for name in facts},
        "status": result.status,
        "suspects": [
            {"components": suspect.parts, "points": ["/".join(v.check.key) for v in suspect.values]}
            for suspect in result.suspects
        ],
        "values": [value(each) for each in result.values],
        # Experiments without a value in the map -> the faults that the check does not see.
        "experiments_missing_in_map": result.missing_experiments,
        "left_for_the_next_check": ["/".join(each.key) for each in result.left_for_next_check],
    }


@click.command("history")
@click.argument("folder", type=RESULTS_FOLDER)
@click.option("--all", "print_all", is_flag=True, help="Print also the values that did not change.")
@click.option("--csv", "csv_file", type=FILE, help="Also write all values and changes as CSV.")
@JSON_OPTION
def history_command(folder: Path, print_all: bool, csv_file: Path | None, as_json: bool) -> None:
    """Say since when a host is slower or faster, and which components changed then.

    FOLDER is results/HOST/CONFIGURATION with the series of `chaosity check`. Changes below 2 % are
    not reported.

    Example: chaosity history results/demo/paper_server
    """
    from chaosity.health.check_history import read_check_history

    if as_json:
        refuse_options_without_effect("with --json", "print_all")
    history = read_check_history(folder)
    if csv_file:
        from chaosity.records.record_files import write_atomically
        from chaosity.store.csv_tables import csv_text

        write_atomically(csv_file, csv_text(history.table()))
    if as_json:
        print_json(_history_document(history))
    else:
        _print_history(history, history.series if print_all else history.changed_series)


def _print_history(history: CheckHistory, shown: Sequence[ValueSeries]) -> None:
    """Print the changes of values, the newest first, and a table of all series."""
    if history.is_simulated:
        print_that_nothing_was_measured()
    for sentence in history.sentences():
        print_line(sentence)
    if history.unknown:
        number = format_count(len(history.unknown), "value")
        names = history.unknown[0] + ", ..." * (len(history.unknown) > 1)
        print_line(f"{number} of points that are no longer in the plan: {names}.")
    if not shown:
        return
    rows = []
    for each in shown:
        metric, (first, now) = each.check.metric, each.ends
        place = ("->".join(each.check.parts), metric_in_words(metric), len(each.times))
        ends = (format_quantity(metric, first), format_quantity(metric, now))
        rows.append((*place, *ends, f"{100 * (now / first - 1):+.1f} %"))
    print_table(rows, ["component", "metric"], ["checks", "at first", "now", "change"])


def _history_document(history: CheckHistory) -> dict[str, object]:
    """Return the history as a JSON document: numbers, changes with their values, unknown points."""
    facts = ("parts", "is_worse", "is_drift", "since", "first", "last", "components")
    return {
        "checks": len(history.times_of_checks),
        "values": len(history.series),
        "is_simulated": history.is_simulated,
        "changes": [
            {
                **{name: getattr(change, name) for name in facts},
                "values": [
                    {
                        **dict(zip(("experiment", "point", "metric"), series.key, strict=True)),
                        "before": before,
                        "after": after,
                    }
                    for series, before, after in change.values
                ],
            }
            for change in history.changes
        ],
        "unknown_points": history.unknown,
    }
