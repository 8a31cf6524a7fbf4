"""The list of files of a result folder names every file."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

from chaosity.result_folders import FILES_OF_A_CONFIGURATION
from machines import configuration_folder, simulated


def test_every_file_of_a_host_is_listed() -> None:
    folder = configuration_folder(simulated("two_packages", ["memory_bandwidth", "latency_matrix"]))
    patterns = [
        re.sub(r"EXPERIMENT|POINT|N(?=\.)|(?<=/)$", "*", name) for name in FILES_OF_A_CONFIGURATION
    ]
    files = [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]
    assert files
    assert not [name for name in files if not any(fnmatchcase(name, one) for one in patterns)]
