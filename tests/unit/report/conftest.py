"""Writes the figures of these tests quickly."""

from __future__ import annotations

from quick_files import all_files_are_quick as all_files_are_quick
