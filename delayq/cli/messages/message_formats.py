"""How messages and items are printed: as a table, as plain rows for a pipe, as JSON, JSON lines or CSV."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import msgspec

from delayq.cli.support.options import json_option, options_as
from delayq.cli.support.output import (
    UNLIMITED,
    console,
    json_fields,
    json_line,
    plain_rows,
    print_json,
    print_rich,
    table,
)
from delayq.privacy.redaction import preview
from delayq.queue.inspecting.decoded_payload import decode_payload
from delayq.queue.inspecting.message_info import MessageInfo, Page
from delayq.values.states import State
from delayq.values.text import clean, pluralize, relative_time, truncate

if TYPE_CHECKING:
    from delayq.workqueue import ItemInfo


def payload_of(message: MessageInfo | ItemInfo) -> bytes:
    """Return the stored payload of a message or item, as far as it was read."""
    return (message.payload or b"") if isinstance(message, MessageInfo) else message.data


def message_json(message: MessageInfo | ItemInfo) -> dict[str, Any]:
    """Return the fields of a message or item for JSON."""
    payload, encoding, truncated = decode_payload(payload_of(message), message.size)
    id = message.id.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    first = {"id": id, "state": message.state, "payload": payload, "encoding": encoding, "truncated": truncated}
    fields = json_fields(message)
    if isinstance(message, MessageInfo):
        fields |= {name: value_of(getattr(message, name)) for name in ("result", "progress")}
        if message.state == State.COMPLETED:
            first |= {"payload": None, "encoding": ""}
    return first | {name: value for name, value in fields.items() if name not in {*first, "data"}}


def value_of(stored: bytes | None) -> Any:
    """Return a stored result or progress, decoded as far as possible; None for none."""
    return None if stored is None else decode_payload(stored, len(stored))[0]


def json_names(kind: type[MessageInfo | ItemInfo]) -> list[str]:
    """Return the names of these fields, in their order."""
    first = ["id", "state", "payload", "encoding", "truncated"]
    return first + [field.name for field in dataclasses.fields(kind) if field.name not in {*first, "data"}]


MAX_REASON = 30
"""Characters of a reason in a table, which also shows the error."""
_CELLS: dict[str, Callable[[Any, datetime], str | int]] = {
    "id": lambda message, _: message.id,
    "name": lambda message, _: clean(message.name),
    "state": lambda message, _: str(message.state),
    "entry": lambda message, _: message.entry or "",
    "due": lambda message, now: relative_time(message.due, now),
    "lease ends": lambda message, now: relative_time(message.deadline, now) or "expired",
    "next try": lambda message, now: relative_time(message.deadline, now),
    "completed": lambda message, now: relative_time(message.completed, now),
    "result": lambda message, _: "" if message.result is None else preview(message.result, len(message.result)),
    "died": lambda message, now: relative_time(message.died, now),
    "attempts": lambda message, _: message.attempts,
    "retries": lambda message, _: message.retries_left,
    "consumer": lambda message, _: message.consumer or "",
    "reason": lambda message, _: truncate(clean(message.reason), MAX_REASON),
    "error": lambda message, _: message.error or unhandled_text(message),
    "payload": lambda message, _: preview(payload_of(message), message.size),
}
"""The cells of a table of messages, by the title of the column."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
"""How a cell begins that a spreadsheet would take for a formula: https://owasp.org/www-community/attacks/CSV_Injection"""


def unhandled_text(message: MessageInfo) -> str:
    """Return why a message comes back that no worker takes; '' for one that none has sent back."""
    if not message.unhandled:
        return ""
    return f"sent back {pluralize(message.unhandled, 'time')}: no function of the worker takes it, as its log says"


class Format(NamedTuple):
    """How to print messages; none of them means a table."""

    as_json: bool
    jsonl: bool
    csv: bool

    @property
    def is_table(self) -> bool:
        """Whether people read it."""
        return not any(self)

    def check(self) -> None:
        """Raise a usage error if more than one was chosen."""
        if sum(self) > 1:
            raise click.UsageError("choose one of --json, --jsonl and --csv")


format_options = options_as(
    Format,
    "form",
    [
        json_option,
        click.option("--jsonl", is_flag=True, help="Print a line of JSON per message."),
        click.option("--csv", is_flag=True, help="Print CSV."),
    ],
)


def page_printer(form: Format, kind: type[Any], titles: Sequence[str], now: datetime) -> Callable[[Page], None]:
    """Return the function that prints one page after the other; `kind` is `MessageInfo` or `ItemInfo`."""
    form.check()
    if form.as_json:
        return _print_json
    if form.jsonl:
        return _print_json_lines
    return _CsvPrinter(kind) if form.csv else _TablePrinter(titles, now)


def _print_json(page: Page) -> None:
    print_json({"messages": [message_json(message) for message in page.messages], "cursor": page.cursor})


def _print_json_lines(page: Page) -> None:
    if page.messages:
        click.echo("\n".join([json_line(message_json(message)) for message in page.messages]))


class _CsvPrinter:
    """Prints the fields of each message, which are those of its JSON, under one line of their names."""

    def __init__(self, kind: type[Any]) -> None:
        """Print messages of this kind."""
        self._kind = kind
        self._is_first = True

    def __call__(self, page: Page) -> None:
        """Print one page."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        rows = [message_json(message) for message in page.messages]
        if self._is_first:
            writer.writerow(json_names(self._kind))
            self._is_first = False
        writer.writerows([_cell(name, value) for name, value in row.items()] for row in rows)
        click.echo(clean(text.getvalue(), lines=True), nl=False)


def _cell(name: str, value: Any) -> str | int:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and name != "payload":
        return value
    text = value if isinstance(value, str) and name != "payload" else _payload_text(value)
    return f"'{text}" if text.startswith(_FORMULA) else text


def _payload_text(value: Any) -> str:
    """Return a payload or the headers: text as it is, any other value as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


class _TablePrinter:
    """Prints a table under one heading; without a terminal as plain rows, which takes a tenth of the time.

    It has a column for names if a message of the first page has one.
    """

    def __init__(self, titles: Sequence[str], now: datetime) -> None:
        self._titles = list(titles)
        self._now = now
        self._is_first = True
        self._widths = [0] * len(titles)
        self._is_plain = console().width == UNLIMITED

    def __call__(self, page: Page) -> None:
        """Print one page."""
        if not page.messages:
            return
        if self._is_first and any(getattr(message, "name", "") for message in page.messages):  # items have none
            self._titles.insert(1, "name")
            self._widths.append(0)
        cells = [_CELLS[title] for title in self._titles]
        rows = [[cell(message, self._now) for cell in cells] for message in page.messages]
        if self._is_plain:
            click.echo(plain_rows(self._titles, rows, self._widths, head=self._is_first))
        else:
            print_rich(table(self._titles, rows, fill=True, head=self._is_first))
        self._is_first = False
