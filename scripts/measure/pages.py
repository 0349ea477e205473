"""The pages that hold tables of what was measured, between `<!-- bench -->` and `<!-- /bench -->`."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
PERFORMANCE = ROOT / "delayq" / "docs" / "performance.md"

_MARKED = re.compile(r"(<!-- bench -->\n).*?(<!-- /bench -->)", re.DOTALL)


class PageError(Exception):
    """A page has no place for a table, or more than one."""


def check(page: Path) -> None:
    """Raise `PageError` unless a page has one place for a table: better before than after twenty minutes."""
    _read(page)


def rewrite(page: Path, table: str) -> None:
    """Put a table into its place; what is around it stays."""
    page.write_text(_MARKED.sub(lambda found: f"{found[1]}{table}\n{found[2]}", _read(page)))


def _read(page: Path) -> str:
    try:
        text = page.read_text()
    except OSError as error:
        raise PageError(f"{page.name}: {error.strerror}") from error
    places = len(_MARKED.findall(text))
    if places != 1 or text.count("<!-- bench -->") != 1 or text.count("<!-- /bench -->") != 1:
        raise PageError(f"{page.name} must have one <!-- bench --> and one <!-- /bench --> after it")
    return text
