"""The pages of the handbook, which is part of the package: their order, and a search in them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

INDEX = "README.md"
"""Lists the pages of the handbook in sections."""
_ENTRY = re.compile(r"- \[(.+)\]\(.+\): (.+)")
_HEADING = re.compile(r"(#+) (.+)")


class FoundLine(NamedTuple):
    """A place in the handbook that has all the words of a search."""

    topic: str
    line: int
    """The line of the page, from 1."""
    heading: str
    """The heading above the line, or the line itself if it is one."""
    text: str
    """The line, without the marks of a heading."""


def sections() -> dict[str, dict[str, str]]:
    """Return the index: by section, the topics with what each page is about."""
    found: dict[str, dict[str, str]] = {}
    for line in files("delayq").joinpath("docs", INDEX).read_text("utf-8").splitlines():
        if line.startswith("## "):
            found[line[3:]] = {}
        elif entry := _ENTRY.fullmatch(line):
            found[[*found][-1]][entry[1]] = entry[2]
    return found


def pages() -> dict[str, Traversable]:
    """Return the pages by their topics, in the order of the index."""
    folder = files("delayq").joinpath("docs")
    return {topic: folder.joinpath(f"{topic}.md") for section in sections().values() for topic in section}


def search(words: Sequence[str], among: dict[str, Traversable]) -> list[FoundLine]:
    """Return where the handbook has all the words, in any case: one line of each such section.

    Sections whose heading has the words come first, then those with a line that has them, then those that have them
    in several lines; among equals, in the order of the pages. The line is the first with the most of the words.
    """
    wanted = [word.lower() for word in words]
    ranked: list[tuple[int, FoundLine]] = []
    for topic, page in among.items():
        for heading, lines in _parts(page.read_text("utf-8")):
            if all(any(word in text.lower() for _, text in lines) for word in wanted):
                number, text = max(lines, key=lambda line: _count(wanted, line[1]))
                rank = _rank(wanted, heading, text)
                ranked.append((rank, FoundLine(topic, number, heading, text)))
    return [found for _, found in sorted(ranked, key=lambda one: one[0])]


def _rank(wanted: list[str], heading: str, text: str) -> int:
    """Return 0 if a heading has all the words, 1 if a line has them, else 2."""
    return 0 if _count(wanted, heading) == len(wanted) else 1 if _count(wanted, text) == len(wanted) else 2


def _count(wanted: list[str], text: str) -> int:
    return sum(word in text.lower() for word in wanted)


def _parts(text: str) -> Iterator[tuple[str, list[tuple[int, str]]]]:
    """Yield the sections of a page: the heading, and the lines with their numbers, of which it is the first."""
    heading, lines, code = "", list[tuple[int, str]](), False
    for number, line in enumerate(text.splitlines(), 1):
        code ^= line.lstrip().startswith("```")
        title = None if code else _HEADING.fullmatch(line)  # in code a # begins a comment
        if title:
            if lines:
                yield heading, lines
            heading, lines = title[2], []
        lines.append((number, title[2] if title else line.strip()))
    yield heading, lines
