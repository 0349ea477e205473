"""`delayq send`: sends one message, or one for each line of a file or of stdin."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from itertools import islice
from typing import IO, Any

import click
import msgspec

from delayq.broker.batches import BATCH
from delayq.broker.engine import Feature
from delayq.bulk.files.local_files import read_lines
from delayq.cli.support.engines import ENGINES
from delayq.cli.support.exit_codes import Exit
from delayq.cli.support.options import (
    DURATION,
    ID,
    codec_option,
    due_options,
    header_option,
    json_option,
    queue_with,
    retries_option,
)
from delayq.cli.support.output import print_json, print_line, print_note, print_result
from delayq.cli.support.progress import progress_bars
from delayq.cli.support.zones import due_text, zoned_iso
from delayq.errors import DelayqError
from delayq.queue.sending.message_options import STORED, NewMessage
from delayq.queue.sending.producer import SendStatus, Sent
from delayq.values.text import format_duration, iso, pluralize

MAX_LINE = 16 << 20
"""Bytes of a line: far more than a payload may have, and far less than the memory."""

_REPORTS = {
    SendStatus.NEW: "sent to {}, due {}",
    SendStatus.ADDED: "added to the group in {}, due {}",
    SendStatus.REPLACED: "replaced in {}, due {}",
    SendStatus.EXISTS: "not sent to {}: a message with this id exists (--replace replaces it)",
    SendStatus.SETTLED: "not sent to {}: a message with this id has ended, and the id is reserved until {}",
    SendStatus.AFTER: "waits in {} after the message with this id, which is being processed, due {}",
    SendStatus.RUNNING: "not replaced in {}: the message with this id is being processed",
}
_REPORTS_WITHOUT_DUE = {
    SendStatus.NEW: "sent to {}",
    SendStatus.EXISTS: "not sent to {}: a message with this id exists",
}
"""For engines without due times and without replacing."""
_FEATURES = {
    "delay": Feature.DELAYS,
    "at": Feature.DELAYS,
    "retries": Feature.RETRIES,
    "header": Feature.HEADERS,
    **STORED,
    "jitter": Feature.DELAYS,
    "unique": Feature.UNIQUE_IDS,
    "debounce": Feature.DEBOUNCE,
    "replace": Feature.REPLACE,
    "replace_after": Feature.SUCCESSORS,
}
"""The options that not every engine offers."""


@click.command()
@queue_with()
@click.argument("payload", required=False)
@click.option("--file", type=click.File("rb"), help="Send one message per line of a file; - is stdin.")
@codec_option
@click.option("--text", is_flag=True, help="Send PAYLOAD as text; short for --codec text.")
@due_options
@retries_option()
@click.option("--id", type=ID, help="Send only if no message with this id exists.")
@click.option("--unique", is_flag=True, help="Let name and payload make the id: send only if there is no such message.")
@click.option("--unique-for", type=DURATION, help="Reserve the id for so long from now, also after the end.")
@click.option("--unique-after", type=DURATION, help="Reserve the id for so long from the end of the message.")
@click.option("--debounce", type=DURATION, help="Deliver so long after the last send with this id, only the last.")
@click.option("--at-most", type=DURATION, help="With --debounce, deliver at most so long after the first send.")
@click.option(
    "--collect", type=int, metavar="N", help="With --debounce, deliver up to N payloads of this id as a list."
)
@click.option("--group", type=ID, help="With --collect, the id that collects; with --delay, it is joined once due.")
@click.option("--name", metavar="NAME", help="The name of what is to be done, such as invoice.paid.")
@click.option("--key", metavar="KEY", help="What it belongs to, such as account:7: see `delayq docs limits`.")
@click.option("--jitter", type=DURATION, help="Make it due up to so long later, drawn from its id.")
@click.option("--expires", type=DURATION, help="Do not start it later than so long after its due time.")
@click.option("--hours", metavar="HOURS", help="Deliver it only in these hours: '08:00-21:00', 'MON-FRI 09:00-17:00'.")
@click.option(
    "--tz", is_eager=True, metavar="ZONE", help="Use the wall clock of this zone for --hours.  [default: UTC]"
)
@click.option("--timeout", type=DURATION, help="Let its callback run no longer; then the attempt has failed.")
@click.option("--missed", type=click.Choice(["dead", "drop"]), default="dead", help="What becomes of it then.")
@click.option("--priority", type=int, metavar="N", help="Let it come before others that are due: -100 to 100.")
@click.option("--retention", type=DURATION, help="Keep its result for so long once it is done.")
@header_option
@click.option("--replace-after", is_flag=True, help="Like --replace; follow the message if it is being processed.")
@click.option("--replace", is_flag=True, help="Replace payload and due time of a waiting message with this id.")
@json_option
@click.pass_context
def send(
    ctx: click.Context,
    /,
    queue: str,
    payload: str | None,
    *,
    engine: str,
    file: IO[bytes] | None,
    codec: str,
    text: bool,
    header: dict[str, str],
    unique: bool,
    priority: int | None,
    replace: bool,
    replace_after: bool,
    debounce: timedelta | None,
    at_most: timedelta | None,
    collect: int | None,
    group: str | None,
    as_json: bool,
    **options: Any,
) -> Exit:
    """Send PAYLOAD (JSON) to QUEUE, now or with --delay or --at; print its id.

    WHEN is a time (2027-01-31T09:00), now, or a time from now: +2h.

    With - as PAYLOAD, or with --file, each line is a message. Exit code 1 if the message to replace is running.

    PAYLOAD is stored as it is: to a queue with codec=Encrypted, send from its program, which has the keys.

    Streams and work queues deliver at once; they refuse options that their engine does not support.

    JSON, one line per message: {"queue", "id", "status"}; the status is new, exists, replaced, added, running,
    after or settled. If the id was taken, also "owner": {"state", "due"}: that of its message, or when a settled id is
    free.
    """
    delay, at = options["delay"], options["at"]
    _check(ctx.params)
    codec = "text" if text else codec
    parse = payload_parser(codec)
    into = ENGINES[engine].commands(ctx.obj).open_to_send(queue, codec)
    has_delays = ENGINES[engine].capabilities.has(Feature.DELAYS)

    options |= {"unique": "payload" if unique else None, "priority": priority, "headers": header or None}

    def message(raw: bytes, where: str) -> NewMessage[Any]:
        return NewMessage(parse(raw, where), **options)

    if payload is not None and payload != "-":
        raw = os.fsencode(payload)
        mode = {"replace": "after" if replace_after else True} if replace or replace_after else {}
        if debounce is None:
            (sent,) = into.send_many([message(raw, "PAYLOAD")], **mode)
        else:
            chosen = options | {"debounce": debounce, "at_most": at_most, "collect": collect, "group": group}
            sent = into.send(parse(raw, "PAYLOAD"), **chosen)
        print_result(_sent_json(queue, sent), sent.id, as_json=as_json)
        if not as_json:
            reports = _REPORTS if has_delays else _REPORTS_WITHOUT_DUE
            reserved = sent.owner is not None and sent.status is SendStatus.SETTLED
            exact = sent.owner.due if reserved else sent.due if options["hours"] else None
            due = zoned_iso(exact) if exact else _due(delay or (None if at else debounce), at, options)
            print_note(reports[sent.status].format(queue, due))
        return Exit.FAILURE if sent.status is SendStatus.RUNNING else Exit.OK
    if options["id"] is not None:
        raise click.UsageError("--id works with a single PAYLOAD, not with - or --file")
    stream = file or click.open_file("-", "rb")
    total = _send_lines(into, _messages(stream, message, codec), as_json=as_json, size=_size(stream))
    if not as_json:
        due = f", due {_due(delay, at, options)}" if has_delays else ""
        print_line(f"sent {pluralize(total, 'message')} to {queue}{due}")
    return Exit.OK


def _check(params: dict[str, Any]) -> None:
    """Raise an error for options that contradict each other, or that the engine lacks."""
    if params["delay"] is not None and params["at"] is not None:
        raise click.UsageError("give either --delay or --at, not both")
    if (params["payload"] is None) == (params["file"] is None):
        raise click.UsageError("give either PAYLOAD or --file")
    for option, feature in _FEATURES.items():
        value = params[option]
        if value is not None and value is not False and value != {}:  # --retries 0 is a value
            ENGINES[params["engine"]].capabilities.require(feature)
    if params["tz"] is not None and params["hours"] is None:
        raise click.UsageError(
            "--tz goes with --hours; for the times of a command, give it first: delayq --tz ZONE send"
        )
    if params["at_most"] is not None and params["debounce"] is None:
        raise click.UsageError("--at-most goes with --debounce")
    _check_collect(params)
    if params["debounce"] is not None:
        _check_debounce(params)
    _check_reserved(params)
    _check_replace(params)


def _check_collect(params: dict[str, Any]) -> None:
    group, debounced = params["group"] is not None, params["debounce"] is not None
    if params["collect"] is not None and not (debounced and (group or params["id"] is not None)):
        raise click.UsageError("--collect goes with --debounce and the --id of the group")
    if group and params["collect"] is None:
        raise click.UsageError("--group goes with --debounce and --collect")
    if group and params["id"] is not None and params["delay"] is params["at"] is None:
        raise click.UsageError("give --id or --group, not both, unless the message has a --delay")


def _check_reserved(params: dict[str, Any]) -> None:
    name = next((name for name in ("unique_for", "unique_after") if params[name] is not None), None)
    if name is None:
        return
    option = f"--{name.replace('_', '-')}"
    if params["id"] is None and not params["unique"]:
        raise click.UsageError(f"{option} needs an --id, or --unique")
    if params["replace"] or params["replace_after"]:
        raise click.UsageError(f"{option} does not go with --replace: the first send wins, or the last")


def _check_replace(params: dict[str, Any]) -> None:
    if params["replace"] and params["replace_after"]:
        raise click.UsageError("give either --replace or --replace-after, not both")
    if params["replace_after"] and params["id"] is None:
        raise click.UsageError("--replace-after needs the --id of the message to replace")
    if params["replace"] and params["id"] is None:
        raise click.UsageError("--replace needs the --id of the message to replace")


def _check_debounce(params: dict[str, Any]) -> None:
    timed = () if params["group"] is not None else ("delay", "at", "jitter")
    others = (*timed, "file", "replace", "replace_after", "unique_for", "unique_after")
    other = next((name for name in others if params[name] not in (None, False)), None)
    if other is not None or params["payload"] == "-":
        shown = f"--{other.replace('_', '-')}" if other else "- as PAYLOAD"
        raise click.UsageError(f"--debounce does not go with {shown}")
    if params["id"] is params["group"] is None and not params["unique"]:
        raise click.UsageError("--debounce needs an --id, or --unique")


def _send_lines(queue: Any, messages: Iterator[tuple[int, NewMessage[Any]]], *, as_json: bool, size: int | None) -> int:
    """Send messages in batches, with a progress bar; return how many."""
    total = bytes_read = 0
    with progress_bars() as add_bar:
        advance = add_bar(f"sending to {queue.name}")
        try:
            while batch := list(islice(messages, BATCH)):
                sent = queue.send_many([message for _, message in batch])
                total += len(batch)
                bytes_read += sum(length for length, _ in batch)
                for one in sent if as_json else ():
                    print_json(_sent_json(queue.name, one))
                advance(bytes_read, size, f"{total:,} sent")
        except (DelayqError, click.UsageError) as error:
            if total == 0:
                raise
            raise type(error)(f"{error}; {pluralize(total, 'message')} were sent before that") from error
    return total


def _sent_json(queue: str, sent: Sent) -> dict[str, Any]:
    owner = {} if sent.owner is None else {"owner": {"state": sent.owner.state, "due": iso(sent.owner.due)}}
    return {"queue": queue, "id": sent.id, "status": sent.status, **owner}


def _messages(
    stream: IO[bytes], message: Callable[[bytes, str], NewMessage[Any]], codec: str
) -> Iterator[tuple[int, NewMessage[Any]]]:
    """Yield the messages of a stream, each with the bytes of its line; blank lines are skipped in JSON."""
    for number, line in lines_of(stream, is_text=codec != "bytes"):
        raw = line.removesuffix(b"\n").removesuffix(b"\r")
        if raw.strip() or codec != "json":
            yield len(line), message(raw, f"line {number}")


def lines_of(stream: IO[bytes], *, is_text: bool = True) -> Iterator[tuple[int, bytes]]:
    """Yield the numbered lines of a stream; a usage error for one that is too long, and for a text in UTF-16."""
    try:
        for number, line in enumerate(read_lines(stream, MAX_LINE, is_text=is_text), 1):
            if len(line) > MAX_LINE:
                raise click.UsageError(f"line {number} is longer than {MAX_LINE:,} bytes")
            yield number, line
    except ValueError as error:
        raise click.UsageError(f"cannot read {getattr(stream, 'name', 'stdin')}: {error}") from error


def payload_parser(codec: str) -> Callable[[bytes, str], Any]:
    """Return a function that parses a payload; its error names where the payload is."""

    def parse(raw: bytes, where: str) -> Any:
        try:
            if codec == "json":
                return msgspec.json.decode(raw)
            return raw.decode() if codec == "text" else raw
        except (msgspec.MsgspecError, RecursionError) as error:
            raise click.UsageError(f"{where} is not JSON ({error}); to send plain text, give --text") from error
        except UnicodeDecodeError as error:
            raise click.UsageError(f"{where} is not UTF-8 text; to send any bytes, give --codec bytes") from error

    return parse


def _due(delay: timedelta | None, at: datetime | None, options: dict[str, Any]) -> str:
    jitter: timedelta | None = options["jitter"]
    spread = f", or up to {format_duration(jitter.total_seconds())} later" if jitter else ""
    return due_text(delay, at) + spread + (", or when its hours open" if options["hours"] else "")


def _size(stream: IO[bytes]) -> int | None:
    try:
        return os.fstat(stream.fileno()).st_size or None
    except (OSError, ValueError):
        return None
