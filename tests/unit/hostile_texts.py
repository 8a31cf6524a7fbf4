"""Texts that mean something to a shell, a browser, a spreadsheet, a terminal, Jinja or a path."""

from __future__ import annotations

SHELL = "x;touch pwned $(touch pwned) `touch pwned`"
HTML = '"><script>alert(1)</script><img src=x onerror=alert(1)>'
FORMULA = "=cmd|' /C calc'!A0"
TERMINAL = "\x1b]0;title\x07\x1b[2J\x9b31m\u202eexe.txt"
JINJA = "{{ 7 * 7 }}{% for x in y %}"
MATH = r"$\frac{1$"
PATHS = ("../../x", "/etc/passwd", "..", ".hidden", "-rf", "a/b", "a\0b", "a\nb", "")
EVERYTHING = f"{HTML} {SHELL} {JINJA} {MATH}"
