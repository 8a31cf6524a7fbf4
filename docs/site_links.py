"""Hook of mkdocs: what a page links outside of docs/ has no place on the web site."""

from __future__ import annotations

import os
import re
from pathlib import PurePosixPath
from typing import Any

_LINK = re.compile(r"\[([^]]*)\]\((\.\./[^)#\s]+)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, *, page: Any, **_others: Any) -> str:
    """Return a page whose links to files of the repository are the names of these files."""

    def plain(match: re.Match[str]) -> str:
        path = os.path.normpath(PurePosixPath(page.file.src_uri).parent / match[2])
        if not path.startswith("../"):
            return match[0]
        name = path.removeprefix("../")
        return f"`{name}`" if match[1].strip("`") in name else f"{match[1]} (`{name}`)"

    return _LINK.sub(plain, markdown)
