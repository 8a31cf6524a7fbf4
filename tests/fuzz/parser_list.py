"""Every parser of foreign input: what it reads and which errors it may raise.

The property: for any input, a parser returns a well-formed value or raises an allowed error. It
raises no other error, ends within `watched_parser.MOST_SECONDS` of processor time and within
`watched_parser.MOST_BYTES` of memory, and writes only into its folder.
"""

from __future__ import annotations

from functools import cache

from fuzz import document_parsers, record_parsers, table_parsers, topology_parsers
from fuzz.watched_parser import Parser

FAMILIES = (topology_parsers, record_parsers, table_parsers, document_parsers)


@cache
def all_parsers() -> dict[str, Parser]:
    """Return all parsers by name; `make fuzz` prints the list."""
    return {parser.name: parser for family in FAMILIES for parser in family.parsers()}
