"""Writes tables into pages, between marks such as `<!-- bench -->` and `<!-- /bench -->`."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
PERFORMANCE = ROOT / "delayq" / "docs" / "performance.md"


class PageError(Exception):
    """A page does not have exactly one pair of marks."""


def check(page: Path, mark: str = "bench") -> None:
    """Raise `PageError` unless a page has one pair of marks: check this before measuring for twenty minutes."""
    _read(page, mark)


def rewrite(page: Path, table: str, mark: str = "bench") -> None:
    """Replace the table between the marks."""
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
