"""``chaosity advise``: where a program should run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from chaosity.cli.shared import (
    EXISTING_FILE,
    JSON_OPTION,
    RESULTS_FOLDER,
    TOPOLOGY_OF_MACHINE_OPTION,
    echo,
    print_json,
    print_line,
    print_table,
    print_that_nothing_was_measured,
    print_that_results_are_unusable,
    print_what_is_not_determined,
    refuse_options_without_effect,
    styled_text,
)
from chaosity.cpusets import format_cpu_list
from chaosity.errors import UserError
from chaosity.units import format_percent, format_quantity, format_with_interval

if TYPE_CHECKING:
    from chaosity.advice.advise import Advice, AdvisedPlace, ShareKeptInMemory
    from chaosity.advice.machine_map import ExpectedValue, MachineMap
    from chaosity.advice.requests import Request

_JSON_SCHEMA_VERSION = 1
# The text for a value is "at most" and the value if the upper end of its interval is less than 1.02
# times the value.
_MOST_RATIO_FOR_AT_MOST = 1.02
_BYTES_OF_UNIT = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


class _SizeParameter(click.ParamType[int]):
    """The type of an option whose value is a size in bytes, such as 40GiB."""

    name = "size"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        if isinstance(value, int):
            return value
        match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([KMGT]iB|)", str(value))
        if not match or float(match[1]) <= 0:
            self.fail(f"{value!r} is no size such as 512MiB or 40GiB", param, ctx)
        return int(float(match[1]) * _BYTES_OF_UNIT[match[2]])


@click.command("advise")
@click.argument("folder", type=RESULTS_FOLDER, required=False, metavar="RESULTS")
@click.option("--cores", type=click.IntRange(1), default=1, show_default=True, help="Cores.")
@click.option(
    "--memory",
    "memory_bytes",
    type=_SizeParameter(),
    default=4 << 30,
    show_default="4GiB",
    help="Size of the data in memory, or of the buffers for drives, such as 40GiB.",
)
@click.option(
    "--for",
    "goal",
    type=click.Choice(["bandwidth", "latency"]),
    default="bandwidth",
    show_default=True,
    help="What the program needs from memory.",
)
@click.option(
    "--kernel",
    default="read",
    show_default=True,
    help="What the program does: read, copy, triad, ... or read67 for 67 % reads.",
)
@click.option("--partitioned", is_flag=True, help="Each thread uses only data that it made itself.")
@click.option(
    "--drives",
    metavar="NUMBER|NAMES",
    help="Drives to read at the highest bandwidth: their number, or their names (a,b).",
)
@click.option(
    "--beside",
    multiple=True,
    metavar="CORES[:TARGET[:KERNEL[:PERCENT]]]",
    help="Another program that runs, such as node1 (one processing unit of each core of node 1), "
    "node1:node4:triad:50, 0-5:node0drives (processing units 0 to 5), or an advised place such as "
    "0,12,24:nodes0-2; repeatable.",
)
@click.option(
    "--places", type=click.IntRange(1), default=3, show_default=True, help="Places to list."
)
@click.option(
    "--machine",
    type=EXISTING_FILE,
    help="Use this description of a machine, such as the output of chaosity fit, not RESULTS.",
)
@TOPOLOGY_OF_MACHINE_OPTION
@JSON_OPTION
def advise_command(
    folder: Path | None,
    cores: int,
    memory_bytes: int,
    goal: str,
    kernel: str,
    partitioned: bool,
    drives: str | None,
    beside: tuple[str, ...],
    places: int,
    machine: Path | None,
    topology: Path | None,
    as_json: bool,
) -> None:
    """Advise where a program should run, and at what speed.

    RESULTS is a folder results/HOST/CONFIGURATION. Results of a run with a budget suffice. The
    command prints the best places, the bandwidth and latency that the program can expect there,
    what limits both, how much worse the next places are, and the line to type.

    The first call fits a model of the machine to the results, which takes seconds to minutes. The
    command keeps the model in model.json of the folder.

    Example: chaosity advise results/localhost --cores 8 --memory 40GiB --beside node1
    """
    from chaosity.advice.advise import advise
    from chaosity.advice.open_map import open_described_machine, open_map
    from chaosity.advice.requests import Request, check_kernel, parse_running_load

    if machine is None:
        refuse_options_without_effect("without --machine", "topology")
    elif folder or not topology:
        remedy = f"chaosity advise --machine {machine} --topology FILE.xml"
        raise UserError("--machine needs --topology, and RESULTS is not allowed", remedy=remedy)
    if drives is not None:
        refuse_options_without_effect("with --drives", "goal", "kernel", "partitioned")
    check_kernel(kernel, "--kernel")
    if machine and topology:
        opened = open_described_machine(machine, topology)
    elif folder:
        opened = open_map(folder, tell=partial(echo, err=True))
    else:
        raise UserError("no RESULTS is named", remedy="name results/HOST/CONFIGURATION of a run")
    request = Request(
        cores=cores,
        memory_bytes=memory_bytes,
        goal="drives" if drives is not None else "latency" if goal == "latency" else "bandwidth",
        kernel=kernel,
        drives=_wanted_drives(drives),
        partitioned=partitioned,
        beside=tuple(
            parse_running_load(text, opened.topology, opened.drives, "--beside") for text in beside
        ),
    )
    advice = advise(opened, request, places)
    if as_json:
        print_json(
            {
                "schema_version": _JSON_SCHEMA_VERSION,
                "simulated": opened.is_simulated,
                "unusable": opened.unusable,
                "stale_components": [*opened.stale_components],
                "cached": advice.cached and advice.cached.to_json(),
                "places": [place.to_json() for place in advice.places],
            }
        )
        return
    _print_advice(advice, request, opened)


def _wanted_drives(text: str | None) -> int | tuple[str, ...]:
    """Return the number or the names of drives that ``--drives`` asks for; 0 without the option."""
    if text is None:
        return 0
    return int(text) if text.isascii() and text.isdigit() else tuple(text.split(","))


def _print_advice(advice: Advice, request: Request, opened: MachineMap) -> None:
    """Print the places, commands for the best place, and what makes the advice uncertain."""
    if opened.is_simulated:
        print_that_nothing_was_measured()
    print_that_results_are_unusable(opened.unusable)
    if opened.stale_components:
        names = ", ".join(opened.stale_components)
        print_line(
            f"The map is outdated: {names} changed since the measurement. Measure again.",
            style="red",
        )
    rate = "bandwidth of the drives" if request.goal == "drives" else "bandwidth"
    rows = [_table_row_of_place(place) for place in advice.places]
    latency = "latency under this load" if request.beside else "latency"
    print_table(rows, ["cores of", "pages on"], [rate, latency, "worse by"], ["limited by"])
    best = advice.places[0]
    units = styled_text(f"processing units {format_cpu_list(best.place.cpus)}", "bold")
    print_line("\nThe best place: ", units)
    if best.place.drives:
        print_line(f"drives: {', '.join(best.place.drives)}")
    for program, command in best.commands.items():
        print_line(f"  {program:8} {command}")
    if cached := advice.cached:
        print_line(_cached_sentence(cached))
    missing = dict(cached.undetermined) if cached else {}
    for each in advice.places:
        for value in filter(None, (each.bandwidth, each.latency)):
            missing |= value.undetermined
    for name, measured_by in missing.items():
        print_what_is_not_determined(name, measured_by, "the advised place")


def _cached_sentence(cached: ShareKeptInMemory) -> str:
    """Return a sentence on the fastest scans: their speed, and how much data is in memory."""
    metric = "bandwidth_bytes_per_second"
    rate, share = cached.scan_bytes_per_second, format_percent(cached.share)
    text = format_quantity(metric, rate)
    if cached.scan_interval and cached.share_interval:
        text = format_with_interval(metric, rate, *cached.scan_interval)
        ends = [format_percent(end) for end in cached.share_interval]
        if ends[0] != ends[1]:
            share += f" ({ends[0].removesuffix(' %')} to {ends[1]})"
        if cached.undetermined and cached.scan_interval[1] < rate * _MOST_RATIO_FOR_AT_MOST:
            text = f"at most {text}"
    return (
        f"Scans are fastest with {share} of the data in the memory of {_nodes([*cached.pages])}: "
        f"{text}; the drives deliver the rest in the same time."
    )


def _table_row_of_place(place: AdvisedPlace) -> list[str]:
    """Return the cells of the row for a place in the table of advised places."""
    pages = [*place.place.shares]
    return [
        _nodes(place.nodes),
        _nodes(pages) if pages else "each its own node",
        _with_interval("bandwidth_bytes_per_second", place.bandwidth),
        _with_interval("latency_ns", place.latency),
        _loss_text(place.loss),
        ", ".join(place.bandwidth.limited_by if place.bandwidth else ()),
    ]


def _loss_text(loss: float) -> str:
    """Return a text on how much worse than the best place another place is or may be."""
    from chaosity.advice.candidate_places import LARGEST_DIFFERENCE_OF_EQUAL_SCORES

    if loss < -LARGEST_DIFFERENCE_OF_EQUAL_SCORES:
        return f"maybe {format_percent(-loss)} better"
    return format_percent(max(loss, 0.0))


def _nodes(nodes: Sequence[int]) -> str:
    return f"{'node' if len(nodes) == 1 else 'nodes'} {format_cpu_list(nodes)}"


def _with_interval(metric: str, value: ExpectedValue | None) -> str:
    """Return a value with its interval as text, such as "78.0 GB/s (34.6 to 78.4)"."""
    if value is None:
        return "not measured"
    if value.low is None or value.high is None:
        return format_quantity(metric, value.median)
    return format_with_interval(metric, value.median, value.low, value.high)
