"""The pages that hold tables of what was measured, between marks such as `<!-- bench -->` and `<!-- /bench -->`."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
PERFORMANCE = ROOT / "delayq" / "docs" / "performance.md"


class PageError(Exception):
    """A page has no place for a table, or more than one."""


def check(page: Path, mark: str = "bench") -> None:
    """Raise `PageError` unless a page has one place for a table: better before than after twenty minutes."""
    _read(page, mark)


def rewrite(page: Path, table: str, mark: str = "bench") -> None:
    """Put a table into its place; what is around it stays."""
    text = _read(page, mark)
    page.write_text(_marked(mark).sub(lambda found: f"{found[1]}{table}\n{found[2]}", text))


def _marked(mark: str) -> re.Pattern[str]:
    return re.compile(f"(<!-- {mark} -->\n).*?(<!-- /{mark} -->)", re.DOTALL)


def _read(page: Path, mark: str) -> str:
    try:
        text = page.read_text()
    except OSError as error:
        raise PageError(f"{page.name}: {error.strerror}") from error
    begin, end = f"<!-- {mark} -->", f"<!-- /{mark} -->"
    if not len(_marked(mark).findall(text)) == text.count(begin) == text.count(end) == 1:
        raise PageError(f"{page.name} must have one {begin} and one {end} after it")
    return text
