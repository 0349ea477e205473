"""`delayq send`: one message from the command line, or one a line from a file or another program."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import IO, Any

import click
import msgspec

from delayq.cli.engines import ENGINES, engine_option, open_to_send, refuse_what_is_lacking
from delayq.cli.failure import Exit
from delayq.cli.options import ID, codec_option, due_options, json_option, queue_argument
from delayq.cli.output import console, put, put_json, say
from delayq.cli.session import Session
from delayq.cli.text import counted, exactly, span
from delayq.errors import DelayqError
from delayq.producer import SLICE, NewMessage, SendStatus, Sent

LONGEST_LINE = 16 << 20
"""Bytes of a line that are read: far more than a payload may have, far less than memory."""

_SAID = {
    SendStatus.NEW: "sent to {}, due {}",
    SendStatus.REPLACED: "replaced in {}, due {}",
    SendStatus.EXISTS: "already in {}, and left as it is: a message of this id lives (--replace replaces it)",
    SendStatus.SETTLED: "not sent to {}: a message of this id was settled within its dedupe window",
    SendStatus.RUNNING: "not replaced in {}: a message of this id is being processed",
}
_SAID_ELSEWHERE = {
    SendStatus.NEW: "sent to {}",
    SendStatus.EXISTS: "already in {}, and left as it is: a message of this id lives",
}
"""Of queues that have no times, and replace nothing."""


def headers_given(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """Return headers that are given as NAME=VALUE."""
    headers = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise click.BadParameter(f"{name!r:.60} without a {'value' if name else 'name'} is not NAME=VALUE")
        headers[name] = value
    return headers


@click.command()
@queue_argument
@engine_option(*ENGINES)
@click.argument("payload", required=False)
@click.option("--file", type=click.File("rb"), help="Send one message a line of a file; - is stdin, as PAYLOAD too.")
@codec_option
@click.option("--text", is_flag=True, help="Short for --codec text.")
@due_options
@click.option(
    "--retries", type=click.IntRange(0), metavar="N", help="Redeliveries before the dead letter; 3 if not given."
)
@click.option("--id", type=ID, help="Send once only: while a message of this id lives, it is left as it is.")
@click.option("--header", multiple=True, metavar="NAME=VALUE", callback=headers_given, help="Sent along; any number.")
@click.option("--replace", is_flag=True, help="Replace payload and due time of a waiting message of this id.")
@json_option
@click.pass_context
def send(
    ctx: click.Context,
    queue: str,
    payload: str | None,
    *,
    engine: str,
    file: IO[bytes] | None,
    codec: str,
    text: bool,
    delay: timedelta | None,
    at: datetime | None,
    retries: int | None,
    id: str | None,
    header: dict[str, str],
    replace: bool,
    as_json: bool,
) -> None:
    """Send PAYLOAD, which is JSON, to QUEUE: at once, or --delay or --at. Prints its id.

    With - as PAYLOAD, or --file, each line is a message. Exit code 1 if a running message was to be replaced.

    A stream or a work queue has it at once; options for what its engine lacks are refused.

    JSON, a line a message: {"queue", "id", "status"}, status being new, exists, replaced, running or settled.
    """
    if delay is not None and at is not None:
        raise click.UsageError("give either --delay or --at, not both")
    if (payload is None) == (file is None):
        raise click.UsageError("give either a PAYLOAD or --file")
    refuse_what_is_lacking(engine, ctx.params)
    session: Session = ctx.obj
    codec = "text" if text else codec
    read = reader(codec)
    into = open_to_send(session, engine, queue, codec)

    def message(raw: bytes, where: str) -> NewMessage[Any]:
        return NewMessage(read(raw, where), delay, at, retries, id, header or None)

    if payload is not None and payload != "-":
        outgoing = message(os.fsencode(payload), "PAYLOAD")
        (sent,) = into.send_many([outgoing], replace=True) if replace else into.send_many([outgoing])
        if not as_json:
            put(sent.id)
            said = _SAID if engine == "delay" else _SAID_ELSEWHERE
            say(said[sent.status].format(queue, _due(delay, at)))
        _report(queue, [sent], as_json=as_json)
        ctx.exit(Exit.FAILURE if sent.status is SendStatus.RUNNING else Exit.OK)
    if id is not None:
        raise click.UsageError("--id is for one message, and each line is one")
    stream = file or click.open_file("-", "rb")
    total = _send_lines(into, _messages(stream, message, codec), as_json=as_json, size=_size(stream))
    if not as_json:
        due = f", due {_due(delay, at)}" if engine == "delay" else ""
        put(f"sent {counted(total, 'message')} to {queue}{due}")


def _send_lines(queue: Any, messages: Iterator[tuple[int, NewMessage[Any]]], *, as_json: bool, size: int | None) -> int:
    """Send messages a slice at a time, with a progress bar; returns how many."""
    total = 0
    with _progress(size) as advance:
        try:
            while part := list(islice(messages, SLICE)):
                sent = queue.send_many([message for _, message in part])
                total += len(part)
                _report(queue.name, list(sent), as_json=as_json)
                advance(sum(length for length, _ in part), total)
        except (DelayqError, click.UsageError) as error:
            if total == 0:
                raise
            raise type(error)(f"{error}; {counted(total, 'message')} had been sent before") from error
    return total


def _report(queue: str, sent: list[Sent], *, as_json: bool) -> None:
    if as_json:
        for one in sent:
            put_json({"queue": queue, "id": one.id, "status": one.status})


def _messages(
    stream: IO[bytes], message: Callable[[bytes, str], NewMessage[Any]], codec: str
) -> Iterator[tuple[int, NewMessage[Any]]]:
    """Read the messages of a stream, with the bytes each took; blank lines are none in JSON."""
    for number, line in enumerate(iter(lambda: stream.readline(LONGEST_LINE + 1), b""), 1):
        if len(line) > LONGEST_LINE:
            raise click.UsageError(f"line {number} is longer than {LONGEST_LINE:,} bytes")
        raw = line.removesuffix(b"\n").removesuffix(b"\r")
        if raw.strip() or codec != "json":
            yield len(line), message(raw, f"line {number}")


def reader(codec: str) -> Callable[[bytes, str], Any]:
    """Return what reads a payload for a codec, and says where it stood if it is none."""

    def read(raw: bytes, where: str) -> Any:
        try:
            return msgspec.json.decode(raw) if codec == "json" else raw.decode() if codec == "text" else raw
        except (msgspec.MsgspecError, RecursionError) as error:
            raise click.UsageError(f"{where} is not JSON ({error}); for plain text give --text") from error
        except UnicodeDecodeError as error:
            raise click.UsageError(f"{where} is not UTF-8 text; for any bytes give --codec bytes") from error

    return read


def _due(delay: timedelta | None, at: datetime | None) -> str:
    if at is not None:
        return exactly(at, datetime.now(UTC))
    return f"in {span(delay.total_seconds())}" if delay else "at once"


def _size(stream: IO[bytes]) -> int | None:
    try:
        return os.fstat(stream.fileno()).st_size or None
    except (OSError, ValueError):
        return None


@contextmanager
def _progress(size: int | None) -> Iterator[Callable[[int, int], None]]:
    """Show on a terminal how far the sending is; yields what takes the bytes read and the messages sent so far."""
    printer = console(stderr=True)
    if not printer.is_terminal:
        yield lambda _bytes, _messages: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = [BarColumn(), TextColumn("{task.fields[sent]:,} sent"), TimeElapsedColumn()]
    with Progress(*columns, console=printer, transient=True) as progress:
        task = progress.add_task("", total=size, sent=0)
        yield lambda length, sent: progress.update(task, advance=length, sent=sent)
