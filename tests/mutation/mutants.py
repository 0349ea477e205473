"""Mutants: each script with one mistake, such as a dropped line, a flipped comparison or swapped keys."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from tests.lua.tables import TEXTS
from tests.lua.test_contract import TYPES
from tests.mutation.syntax import Span, Syntax, Token, parse

FILES = sorted(TEXTS)

_FLIPPED = {"<": ("<=", ">="), ">": (">=", "<="), "<=": ("<", ">"), ">=": (">", "<"), "==": ("~=",), "~=": ("==",)}
_OPPOSITE = {"and": "or", "or": "and", "+": "-", "-": "+"}
_RELATIVES = {
    "'RPUSH'": "'LPUSH'",
    "'LPUSH'": "'RPUSH'",
    "'ZRANGE'": "'ZREVRANGE'",
    "'HINCRBY'": "'HSET'",
    "'0'": "'1'",
    "'1'": "'0'",
    "max": "min",
    "min": "max",
    "floor": "ceil",
    "ceil": "floor",
    "true": "false",
}
"""Words that are easily confused."""


class Mutant(NamedTuple):
    """A file with one mistake. The name is unique, and does not change while that line stays."""

    name: str
    file: str
    kind: str
    text: str


class _Edit(NamedTuple):
    kind: str
    span: Span
    instead: str
    name: str = ""
    """What is changed, if the rest of the line does not matter."""
    shown: int = 0
    """Where the part of the text ends that is shown before it."""


def source(file: str) -> str:
    """Return the text of a script or fragment."""
    return TEXTS[file]


@cache
def mutants_of(file: str) -> list[Mutant]:
    """Return all mutants of a file, none twice, and none that is the original."""
    original = source(file)
    met = {_squeezed(original)}
    names: Counter[str] = Counter()
    found = []
    for edit in _edits(original, parse(original)):
        text = original[: edit.span.start] + edit.instead + original[edit.span.stop :]
        if _squeezed(text) in met:
            continue
        met.add(_squeezed(text))
        name = f"{file}: {_describe(original, edit)}"
        names[name] += 1
        found.append(Mutant(name if names[name] == 1 else f"{name} #{names[name]}", file, edit.kind, text))
    return found


def _squeezed(text: str) -> str:
    return " ".join(text.split())


def _describe(text: str, edit: _Edit) -> str:
    """Return the changed line, or the first of several, and its new text; of a list, its first and what is changed."""
    first = text.rfind("\n", 0, edit.span.start) + 1
    if edit.name:
        return f"{text[first : edit.shown].strip()}…: {edit.name}"
    last = text.find("\n", edit.span.stop)
    lines, changed = text[first:last], text[first : edit.span.start] + edit.instead + text[edit.span.stop : last]
    before, after = (" ".join(one.split()) for one in (lines, changed))
    if "\n" in lines:
        before = " ".join(lines.partition("\n")[0].split()) + " …"
        after = after if len(after) < 100 else f"{after[:99]}…"
    return f"{before} → {after or 'nothing'}"


def _edits(text: str, syntax: Syntax) -> Iterator[_Edit]:
    yield from _dropped(text, syntax)
    yield from _flipped(text, syntax)
    for kind, names in syntax.bound:
        yield from _swapped(kind, names)
    for token in syntax.tokens:
        edits = _mistaken(token)
        if token in syntax.ends:  # values beyond the names are not bound
            edits = (edit for edit in edits if not edit.instead.isdigit() or int(edit.instead) < int(token.text))
        yield from edits


def _dropped(text: str, syntax: Syntax) -> Iterator[_Edit]:
    for span in syntax.dropped:
        yield _Edit("drop", span, "")
    for targets, values in syntax.paired:
        whole = Span(targets[0].start, values[-1].stop)
        for n in range(len(targets)):
            sides = (
                ", ".join(text[one.start : one.stop] for one in side if one is not side[n])
                for side in (targets, values)
            )
            yield _Edit("drop", whole, " = ".join(sides))
    for values in syntax.series:
        for n, one in enumerate(values):
            whole = Span(one.start, values[n + 1].start) if n == 0 else Span(values[n - 1].stop, one.stop)
            yield _Edit("drop", whole, "", f"drop {text[one.start : one.stop]}", values[0].stop)


def _flipped(text: str, syntax: Syntax) -> Iterator[_Edit]:
    for span in syntax.conditions:
        yield _Edit("fence", span, "true")
    for token in syntax.negations:
        yield _Edit("flip", Span(token.start, token.stop), "")
    for sign, left, right in syntax.operations:
        at = Span(sign.start, sign.stop)
        for other in _FLIPPED.get(sign.text, ()):
            yield _Edit("flip", at, other)
        if opposite := _OPPOSITE.get(sign.text):
            yield _Edit("flip" if sign.text in {"and", "or"} else "number", at, opposite)
        if sign.text in {"and", "or"}:
            for kept in (left, right):
                yield _Edit("fence", Span(left.start, right.stop), text[kept.start : kept.stop])


def _swapped(kind: str, names: list[Token]) -> Iterator[_Edit]:
    """Swap keys of one type, which no server distinguishes, and adjacent arguments."""
    for one, other in itertools.combinations(names, 2):
        same = TYPES.get(one.text) == TYPES.get(other.text, "none")
        if same if kind != "ARGV" else names.index(other) == names.index(one) + 1:
            between = ", ".join(name.text for name in names[names.index(one) + 1 : names.index(other)])
            swapped = ", ".join(filter(None, (other.text, between, one.text)))
            yield _Edit("swap", Span(one.start, other.stop), swapped, f"swap {one.text}, {other.text}", names[0].stop)


def _mistaken(token: Token) -> Iterator[_Edit]:
    at = Span(token.start, token.stop)
    if token.kind == "number":
        for off in (1, -1):
            yield _Edit("number", at, str(int(token.text) + off))
    elif token.text in _RELATIVES:
        yield _Edit("near", at, _RELATIVES[token.text])
    elif token.kind == "text" and token.text[1:-1].isdigit():
        yield _Edit("number", at, f"'{int(token.text[1:-1]) + 1}'")
