"""Fuzz all parsers for some minutes: ``make fuzz FUZZ_MINUTES=60``.

Prints the number of inputs of each parser and what failed. The smallest input of each failure is
saved below ``build/fuzz``.
"""

from __future__ import annotations

import argparse
import pickle
import sys
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings

from fuzz.parser_list import all_parsers
from fuzz.watched_parser import Parser, limits, run_watched

# Inputs of a parser before the next parser has its turn.
INPUTS_AT_ONCE = 50


@dataclass
class Failures:
    """The failures so far: place in the code -> the smallest input."""

    folder: Path
    sizes: dict[str, int] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def note(self, parser: Parser, value: object, error: BaseException) -> None:
        """Note a failure, and save its input if it is the smallest so far."""
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if "/workflow/" in frame.filename] or frames
        where = f"{Path(own[-1].filename).name}:{own[-1].lineno}"
        key = f"{parser.name}, {where}: {type(error).__name__}"
        content = pickle.dumps(value)
        self.counts[key] += 1
        if len(content) < self.sizes.get(key, sys.maxsize):
            new = key not in self.sizes
            self.sizes[key], self.texts[key] = len(content), str(error)[:300]
            self.folder.mkdir(parents=True, exist_ok=True)
            name = "".join(letter if letter.isalnum() else "_" for letter in key)
            (self.folder / f"{name}.pickle").write_bytes(content)
            lines = "".join(traceback.format_exception(error))
            (self.folder / f"{name}.txt").write_text(f"{value!r:.20000}\n\n{lines}")
            if new:
                print(f"FAILED {key}: {str(error)[:200]}", flush=True)


def run_parser(parser: Parser, number: int, failures: Failures, folder: Path) -> Counter[str]:
    """Give a parser some inputs; return how many it accepted and refused."""
    counts = Counter[str]()

    @seed(number)
    @settings(
        max_examples=INPUTS_AT_ONCE,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(parser.strategy)
    def check(value: object) -> None:
        try:
            accepted = run_watched(parser, value, folder)
            counts["accepted" if accepted else "refused"] += 1
        except (Exception, RecursionError) as error:
            counts["failed"] += 1
            failures.note(parser, value, error)

    check()
    return counts


def main() -> int:
    """Run the command line; return 1 if a parser failed."""
    options = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    options.add_argument("--minutes", type=float, default=10.0, help="time for all parsers")
    options.add_argument("--only", action="append", help="name of a parser; default: all")
    options.add_argument("--seed", type=int, default=time.time_ns() % 2**31, help="first seed")
    options.add_argument("--output", type=Path, default=Path("build/fuzz"))
    given_options = options.parse_args()
    parsers = [
        parser
        for parser in all_parsers().values()
        if given_options.only is None or parser.name in given_options.only
    ]
    failures, counts = (
        Failures(given_options.output.resolve()),
        {p.name: Counter[str]() for p in parsers},
    )
    seconds = Counter[str]()
    end, number = time.monotonic() + 60 * given_options.minutes, given_options.seed
    print(f"first seed {number}", flush=True)
    with limits() as folder:
        while time.monotonic() < end:
            # The parser that had the least time has its turn.
            parser = min(parsers, key=lambda each: seconds[each.name])
            began = time.monotonic()
            counts[parser.name] += run_parser(parser, number, failures, folder)
            seconds[parser.name] += time.monotonic() - began
            number += 1
    print(f"{'parser':32}{'accepted':>10}{'refused':>10}{'failed':>8}")
    for parser in parsers:
        own = counts[parser.name]
        print(f"{parser.name:32}{own['accepted']:10}{own['refused']:10}{own['failed']:8}")
    total = sum(sum(own.values()) for own in counts.values())
    print(f"{total} inputs, {len(failures.texts)} different failures")
    for key, text in sorted(failures.texts.items()):
        print(f"{failures.counts[key]} x {key}: {text}")
    return 1 if failures.texts else 0


if __name__ == "__main__":
    sys.exit(main())
