"""The runner's command line: ``chaosity-run POINT.json --replicate 1 --record rep1.json``.

``chaosity-run`` measures one point on the machine on which it runs, and hosts get it as a zipapp.
``chaosity-measure`` runs on the controller, and starts ``chaosity-run`` on the point's host.
"""

from __future__ import annotations

import argparse
import json
import os
import stat
import sys
from pathlib import Path

from chaosity.errors import UserError
from chaosity.records.record_files import save_record
from chaosity.records.record_format import VALID, Point
from chaosity.runner.describe_host import DescriptionError, write_host_description
from chaosity.runner.point_measurement import measure_point


def _parse_arguments() -> argparse.Namespace:
    # The runner may use only Python's standard library, so argparse reads the command line.
    parser = argparse.ArgumentParser(
        prog="chaosity-run",
        description="Measure one point on this host and write its record.",
        epilog="Exit status 0: a record was written; its verdict says whether the point failed.",
    )
    parser.add_argument(
        "point", nargs="?", default="-", help="JSON file of the point; - for standard input"
    )
    parser.add_argument("--replicate", type=int, default=1, help="number of the replicate, from 1")
    parser.add_argument("--record", type=Path, help="file of the record; default: standard output")
    parser.add_argument(
        "--describe",
        action="store_true",
        help="measure nothing; print JSON that describes this host, for discovery",
    )
    parser.add_argument("--tools", type=Path, help="folder that is searched first for programs")
    return parser.parse_args()


def put_tools_folder_first_in_path(folder: Path | None) -> None:
    """Put a folder with programs first in PATH; by default, ``kernels`` beside the zipapp.

    The folder of the zipapp comes second, because loads may start chaosity-place from this folder.
    If sudo started this program, PATH loses each folder in which users other than root may write.

    Raises:
        UserError: sudo started this program, and users other than root may write in a folder that
            this function would add to PATH.
    """
    own = Path(sys.argv[0]).resolve()
    is_zipapp = own.suffix == ".pyz"
    tools = folder.absolute() if folder else own.parent / "kernels" if is_zipapp else None
    folders = [tools] if tools else []
    # Hosts with different processors can share the folder `kernels`. For each HOST, the Makefile of
    # the kernels then makes a link `on-HOST` to the programs that were built for this host.
    if tools and (build := tools / f"on-{os.uname().nodename}").is_dir():
        folders.insert(0, build)
    if is_zipapp:
        folders.append(own.parent)
    path = os.environ.get("PATH", os.defpath).split(os.pathsep)
    if os.geteuid() == 0 and "SUDO_UID" in os.environ:
        for each in folders:
            if (writable := folder_that_others_may_write(each)) is not None:
                raise UserError(
                    "users other than root may change the programs that sudo runs as root",
                    str(writable),
                    "set chaosity_directory to a folder such as /opt/chaosity, provision again",
                )
        path = [each for each in path if folder_that_others_may_write(Path(each)) is None]
    os.environ["PATH"] = os.pathsep.join([*map(str, folders), *path])


def folder_that_others_may_write(folder: Path) -> Path | None:
    """Return `folder` or a parent folder that users other than root may change; else None.

    A parent folder with the sticky bit, such as /tmp, is safe, because only root can replace root's
    files in such a folder.
    """
    resolved = folder.resolve()
    for each in (resolved, *resolved.parents):
        try:
            status = each.stat()
        except OSError:
            continue  # a missing folder has no programs that users could change
        shared = status.st_mode & 0o022 and not (each != resolved and status.st_mode & stat.S_ISVTX)
        if status.st_uid != 0 or shared:
            return each
    return None


def _measure_or_describe() -> int:
    """Measure a point and save or print its record; return the exit status."""
    arguments = _parse_arguments()
    try:
        put_tools_folder_first_in_path(arguments.tools)
    except UserError as error:
        print(f"chaosity-run: {error}", file=sys.stderr)
        return 2
    if arguments.describe:
        try:
            request = json.loads(sys.stdin.read() or '{"needs": []}')
            write_host_description(request["needs"], sys.stdout)
        except DescriptionError as error:
            print(f"chaosity-run: {error}", file=sys.stderr)
            return 1
        return 0
    try:
        from_input = arguments.point == "-"
        text = sys.stdin.read() if from_input else Path(arguments.point).read_text()
        point: Point = json.loads(text)
    except (OSError, ValueError) as error:
        print(f"chaosity-run: {arguments.point} is not a point: {error}", file=sys.stderr)
        return 2
    record = measure_point(point, arguments.replicate)
    try:
        if arguments.record:
            save_record(record, arguments.record)
        else:
            json.dump(record, sys.stdout, indent=1, sort_keys=True)
    except OSError as error:
        message = f"the record of {point['point']} cannot be written: {error}"
        print(f"chaosity-run: {message}", file=sys.stderr)
        return 1
    verdict = record["verdict"]
    if verdict["status"] != VALID:
        print(f"chaosity-run: {point['point']} failed: {verdict['reason']}", file=sys.stderr)
    return 0


def main() -> None:
    """Run the command line of the zipapp, and exit with its status."""
    sys.exit(_measure_or_describe())


if __name__ == "__main__":
    main()
