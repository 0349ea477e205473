"""A table of rows as one test: the mark `table(arguments, rows)`, which takes what `parametrize` takes.

A parametrised test pays for its fixtures at every row; one of a table pays once and names every row that fails. Rows
can be `apart`: a function of a row's id gives the name of its group, and each group is a test of its own. Of `some=4`
the quick tests run every fourth row of each group, and the long tests the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import pytest

Named = Callable[[Any], object] | Iterable[str] | None
TELLS_ALL = 5
"""Rows that fail and are shown in full; of more, only the first line."""
SAMPLE = pytest.StashKey[int]()
"""Set by a fixture to have only one of so many rows run: other ones in each test."""


@dataclass(frozen=True)
class Row:
    """The values of a row by the names of the arguments."""

    name: str
    values: dict[str, Any]


class Rows(list[Row]):
    """The rows of one test."""


def rows_of(arguments: str | Sequence[str], rows: Iterable[Any], ids: Named = None) -> Iterator[Row]:
    """Return rows as `parametrize` takes them: plain values, tuples for several arguments, or `pytest.param`."""
    names = [one.strip() for one in arguments.split(",")] if isinstance(arguments, str) else list(arguments)
    told = None if ids is None or callable(ids) else list(ids)
    for number, row in enumerate(rows):
        given = getattr(row, "id", None) if hasattr(row, "marks") else None
        values = row.values if hasattr(row, "marks") else (row if len(names) > 1 else (row,))
        if given is None and told:
            given = told[number]
        if given is None:
            given = "-".join(str(ids(value)) if callable(ids) else _shown(value) for value in values)
        yield Row(given, dict(zip(names, values, strict=True)))


def _shown(value: Any) -> str:
    try:
        return getattr(value, "__name__", None) or repr(value)[:60]
    except Exception:  # noqa: BLE001  # a value may be there because it cannot be shown
        return type(value).__name__


def generate(metafunc: pytest.Metafunc) -> None:
    """Make one test of a table, or one for each of its groups."""
    for mark in metafunc.definition.iter_markers("table"):
        options = dict(mark.kwargs)
        apart, every = options.pop("apart", None), options.pop("some", 1)
        groups: dict[str, Rows] = {}
        for row in rows_of(*mark.args, **options):
            groups.setdefault(apart(row.name) if apart else "", Rows()).append(row)
        names = list(groups[next(iter(groups))][0].values)
        first = crc32(metafunc.function.__name__.encode()) % every
        tests = []
        for group, rows in groups.items():
            chosen = range(first % len(rows), len(rows), every)
            some = Rows(rows[number] for number in chosen)
            rest = Rows(row for number, row in enumerate(rows) if number not in chosen)
            name = group or "all"
            tests.append(pytest.param(*[some] * len(names), id=name))
            if rest:
                tests.append(pytest.param(*[rest] * len(names), id=f"{name}, the rest", marks=pytest.mark.long))
        metafunc.parametrize(names, tests)


def run(item: pytest.Function, between_rows: Iterable[Callable[[], object]]) -> bool | None:
    """Run a test of a table for each of its rows; returns None of other tests, which are left to pytest."""
    arguments = {name: item.funcargs[name] for name in item._fixtureinfo.argnames}
    rows = next((value for value in arguments.values() if isinstance(value, Rows)), None)
    if rows is None:
        return None
    every = item.stash.get(SAMPLE, 1)
    rows = rows[crc32(item.originalname.encode()) % min(every, len(rows)) :: every]
    failed: list[str] = []
    for number, row in enumerate(rows):
        if number:
            for reset in between_rows:
                reset()
        try:
            item.obj(**arguments | row.values)
        except (Exception, pytest.fail.Exception) as error:
            if str(error).startswith("Timeout"):  # that of pytest-timeout, which is for the whole test
                raise
            failed.append(_told(row, error, in_full=len(failed) < TELLS_ALL))
    if failed:
        pytest.fail(f"{len(failed)} of {len(rows)} rows fail:\n" + "\n".join(failed), pytrace=False)
    return True


def _told(row: Row, error: BaseException, *, in_full: bool) -> str:
    found = pytest.ExceptionInfo.from_exception(error)
    found.traceback = found.traceback.cut(path=__file__)[1:] or found.traceback
    text = str(found.getrepr(style="short")) if in_full else found.exconly().partition("\n")[0]
    return f"- {row.name}:\n" + "\n".join(f"    {line}" for line in text.splitlines())
