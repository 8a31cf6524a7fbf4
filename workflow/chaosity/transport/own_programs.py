"""Let commands find the programs of this installation, also without an activated environment."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[3]


def put_own_programs_first_in_path(root: Path = _ROOT) -> None:
    """Put this installation's programs at the start of the search path.

    Rules call `chaosity` and `snakemake`, and measurements call the kernels that were installed.
    """
    own = [str(root / "build" / "kernels"), str(Path(sys.executable).parent)]
    given = os.environ.get("PATH", os.defpath).split(os.pathsep)
    os.environ["PATH"] = os.pathsep.join(dict.fromkeys(own + given))
