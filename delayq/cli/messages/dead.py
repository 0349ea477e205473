"""`delayq dead`: lists, groups, redrives and purges the dead letter of a queue, also with edited payloads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import click
import msgspec

from delayq.broker.engine import Feature
from delayq.cli.messages.list import ALL_PAGES, pages_from, print_pages
from delayq.cli.messages.message_formats import Format, format_options, page_printer, payload_of
from delayq.cli.messages.send import lines_of
from delayq.cli.support.engines import ENGINES
from delayq.cli.support.exit_codes import Exit
from delayq.cli.support.groups import SuggestingGroup
from delayq.cli.support.options import (
    F,
    Paging,
    confirm,
    dry_run_option,
    json_option,
    options_as,
    page_options,
    queue_with,
    retries_option,
    reveal_option,
    yes_option,
)
from delayq.cli.support.output import print_json, print_line, print_note, print_result, print_rich, table
from delayq.cli.support.session import Session
from delayq.cli.support.several import queues_with
from delayq.errors import ConfigurationError
from delayq.privacy.ciphertext import is_encrypted
from delayq.privacy.redaction import HIDDEN, has_hidden
from delayq.queue.dead_groups import DeadGroup, check_group
from delayq.queue.dead_letter import DeadFilter, Redriven
from delayq.queue.inspecting.deaths import check_entry
from delayq.queue.inspecting.decoded_payload import decode_payload, stored_payload
from delayq.queue.inspecting.inspector import MAX_ROWS
from delayq.queue.inspecting.message_info import Page
from delayq.values.states import State
from delayq.values.text import iso, pluralize, relative_time

if TYPE_CHECKING:
    from delayq.queue.inspecting.message_info import MessageInfo


def read_edited(stream: IO[bytes]) -> dict[str, bytes]:
    """Return the new payloads, as they are stored, by entry or id.

    Raises a usage error with the number of the first line that is wrong. A line is an object with an `entry` or `id`
    and a `payload`, or a page of `dead list --json`, which has several of them.
    """
    payloads: dict[str, bytes] = {}
    for where, row in _rows(stream):
        which, payload = _read_row(row, where)
        if which in payloads:
            raise click.UsageError(f"{where}: {which} is there twice")
        payloads[which] = payload
    if not payloads:
        raise click.UsageError("there is no line with a message")
    return payloads


def check_nothing_hidden(payloads: dict[str, bytes]) -> None:
    """Raise a usage error for a payload that has what stands for a hidden value: it would be stored in its place."""
    for which, payload in payloads.items():
        if has_hidden(payload):
            raise click.UsageError(f"{which} has {HIDDEN} in place of a value: list it with --reveal")


class Edited(NamedTuple):
    """The payloads of a file as they are to be stored, by entry or id, and how many differ from the stored ones."""

    payloads: dict[str, bytes]
    changed: int
    unchanged: int


def sealed(payloads: dict[str, bytes], queue: Any, app: str | None) -> Edited:
    """Return payloads as the codec of the queue stores them, encrypted where it encrypts.

    `app` is MODULE:QUEUE, which has the keys. Without it, raises a usage error if the dead messages are encrypted.
    What is encrypted in the file was not edited; what is not there is neither changed nor unchanged.
    """
    plain = {which: None for which, payload in payloads.items() if not is_encrypted(payload)}
    if app is not None:
        from delayq.queue.sweeps.rekeying import seal

        owner = owner_of(app, queue.name)
        fresh = {which: seal(owner, payloads[which]) for which in plain}
        return Edited(payloads | fresh, len(plain), len(payloads) - len(plain))
    same = dict.fromkeys((which for which in payloads if which not in plain), True)
    older = set()
    for which in plain if hasattr(queue, "get") else ():
        found = queue.get(which) or queue.get(which.rpartition(":")[0] or which)
        if ":" in which and (found is None or found.entry != which):
            older.add(which)
        elif found is not None:
            same[which] = _is_same(found, payloads[which], which)
    cursor: str | None = None
    while older:  # entries of ids that have died again or live: only the pages of the dead letter have them
        page = queue.list("dead", limit=MAX_ROWS, cursor=cursor)
        for row in page.messages:
            if row.entry in older:
                same[row.entry] = _is_same(row, payloads[row.entry], row.entry)
        cursor = page.cursor
        if cursor is None:
            break
    unchanged = sum(same.values())
    return Edited(payloads, len(same) - unchanged, unchanged)


def owner_of(app: str, queue: str) -> Any:
    """Return the queue object of MODULE:QUEUE, which has the keys; raise a usage error if it is of another queue."""
    from delayq.cli.support.app_loader import find_queue

    owner = find_queue(app)
    if owner.name != queue:
        raise click.UsageError(f"{app} is queue {owner.name}, not {queue}")
    return owner


def _is_same(found: MessageInfo, payload: bytes, which: str) -> bool:
    """Return whether a dead message has this payload; raise a usage error if it is encrypted."""
    stored = payload_of(found)
    if is_encrypted(stored):
        raise click.UsageError(f"{which} is encrypted: give --app MODULE:QUEUE, which has the keys")
    old, encoding, is_cut = decode_payload(stored, found.size)
    return not is_cut and stored_payload(old, encoding) == payload


def _rows(stream: IO[bytes]) -> Iterator[tuple[str, Any]]:
    for number, line in lines_of(stream):
        if not line.strip():
            continue
        try:
            found = msgspec.json.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise click.UsageError(f"line {number} is not JSON ({error})") from error
        page = found.get("messages") if isinstance(found, dict) else None
        if isinstance(page, list):
            yield from ((f"line {number}, message {n}", row) for n, row in enumerate(page, 1))
        else:
            yield f"line {number}", found


def _read_row(row: Any, where: str) -> tuple[str, bytes]:
    """Return the entry or id of a line, and its payload as it is stored."""
    if not isinstance(row, dict) or "payload" not in row or not (row.get("entry") or row.get("id")):
        raise click.UsageError(f'{where} must be an object with "id" or "entry", and "payload"')
    if row.get("truncated"):
        raise click.UsageError(f'{where}: the payload is only the beginning; give all of it, and leave out "truncated"')
    try:
        return check_entry(row.get("entry") or row["id"]), stored_payload(row["payload"], row.get("encoding", "json"))
    except ConfigurationError as error:
        raise click.UsageError(f"{where}: {error}") from error


RETRIES_SPENT = "retries spent"
"""The reason of most deaths, which says less than their errors."""


class DeadSelection(NamedTuple):
    """Which dead messages to redrive or purge: some ids or entries, those that match a filter, or all."""

    ids: tuple[str, ...]
    reason: str | None
    error: str | None
    group: str | None
    all: bool
    yes: bool
    dry_run: bool

    @property
    def filter(self) -> DeadFilter:
        """What the messages must match."""
        return DeadFilter(self.reason, self.error, self.group)

    def check(self) -> None:
        """Raise a usage error unless exactly one kind of selection was made."""
        if sum((bool(self.ids), any(one is not None for one in self.filter), self.all)) != 1:
            text = "select dead messages: give ids, or --reason, --error or --group to match, or --all; one of them"
            raise click.UsageError(text)
        if self.ids and self.dry_run:
            raise click.UsageError("--dry-run works with --reason, --error, --group or --all, not with ids")

    def check_edit(self) -> None:
        """Raise a usage error if messages are selected beside those of `--edit`."""
        if self.ids or self.all or any(one is not None for one in self.filter):
            text = "--edit names its messages: give no ids, --reason, --error, --group or --all"
            raise click.UsageError(text)

    def confirm(self, queue: Any, question: str) -> int | None:
        """Count what matches and ask for confirmation; ids need none. Returns None if nothing was counted."""
        if self.ids or (self.yes and not self.dry_run):
            return None
        pages = pages_from(_matching_reader(queue, self.filter), ALL_PAGES)
        matched = queue.counts().dead if self.all else sum(len(page.messages) for page in pages)
        if not self.dry_run:
            confirm(question.format(pluralize(matched, "dead message"), queue.name), yes=self.yes)
        return int(matched)

    def arguments(self) -> list[dict[str, Any]]:
        """Return the arguments for `DeadLetter.redrive` or `purge`, one set for each call; none for a dry run."""
        if self.ids or self.dry_run:
            return [{"id": id} for id in self.ids]
        return [{"all": True} if self.all else self.filter._asdict()]

    def report(
        self, queue: str, matched: int | None, found: dict[str, int], verb: str, past: str, *, as_json: bool
    ) -> Exit:
        """Print how many messages were found and what was done with them; return the exit code."""
        total = sum(found.values())
        gone = len(self.ids) - total if self.ids else 0
        if as_json:
            counts = {"matched": total if matched is None else matched, **found, "gone": gone}
            print_json({"queue": queue, **counts, "dry_run": self.dry_run})
        elif self.dry_run:
            print_line(f"would {verb} {pluralize(matched or 0, 'message')}")
        else:
            print_line(f"{past} {pluralize(next(iter(found.values())), 'message')}")
        if gone:
            print_note(f"{pluralize(gone, 'message')} not found in the dead letter")
        return Exit.NOT_FOUND if gone else Exit.OK


def _checked_group(_context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    return None if value is None else check_group(value)


_filter_options = [
    click.option("--reason", metavar="TEXT", help="Select messages whose reason contains TEXT."),
    click.option("--error", metavar="TEXT", help="Select messages whose last error contains TEXT."),
    click.option(
        "--group", metavar="GROUP", callback=_checked_group, help="Select the messages of a group of `dead groups`."
    ),
]
_dead_queue = queue_with(Feature.DEAD_LETTER)
_dead_queues = queues_with(Feature.DEAD_LETTER, names=True)


def _selection_options(function: F) -> F:
    ids = click.argument("ids", metavar="[ID...]", nargs=-1)
    everything = click.option("--all", is_flag=True, help="Select all dead messages.")
    options = [ids, *_filter_options, everything, yes_option, dry_run_option]
    return _dead_queue(options_as(DeadSelection, "selection", options)(json_option(function)))


@click.group(cls=SuggestingGroup, no_args_is_help=False)
def dead() -> None:
    """List, group, redrive or purge the dead letter: messages without retries left, or rejected."""


@dead.command("list", short_help="List the dead letter.")
@_dead_queues
@options_as(DeadFilter, "wanted", _filter_options)
@page_options
@reveal_option
@format_options
@click.pass_obj
def list_(
    session: Session, queue: str, *, engine: str, wanted: DeadFilter, paging: Paging, reveal: bool, form: Format
) -> None:
    """List the dead letter of QUEUE, oldest first.

    JSON and CSV: like those of `delayq list`; "entry" (id:token) distinguishes two deaths of one id.
    """
    commands = ENGINES[engine].commands(session)
    pages = pages_from(_matching_reader(commands.open_dead(queue, reveal=reveal), wanted), paging)
    what = f"dead messages in {queue}{' that match' if any(wanted) else ''}"
    print_pages(pages, what, form, page_printer(form, commands.page_class(), commands.columns[State.DEAD], session.now))


@dead.command(short_help="Group the dead letter by its errors.")
@_dead_queues
@json_option
@click.pass_obj
def groups(session: Session, queue: str, *, engine: str, as_json: bool) -> None:
    """Group the dead letter of QUEUE by the class and shape of reasons and errors, the largest group first.

    Numbers, ids, addresses and quoted texts do not count. Reads the whole dead letter, without payloads.

    JSON: {"groups": [{"group", "count", "first", "last", "reason", "error", "sample": an entry}, …]}.
    """
    found = ENGINES[engine].commands(session).open_dead(queue).dead.groups()
    if as_json:
        print_json({"groups": [_group_json(one) for one in found]})
    elif found:
        now = session.now
        rows = [
            (one.group, one.count, relative_time(one.first, now), relative_time(one.last, now), one.sample, _why(one))
            for one in found
        ]
        print_rich(table(["group", "count", "first", "last", "sample", "why"], rows, fill=True))
    else:
        print_note(f"no dead messages in {queue}")


def _group_json(one: DeadGroup) -> dict[str, Any]:
    fields = {"reason": one.reason, "error": one.error, "sample": one.sample}
    return {"group": one.group, "count": one.count, "first": iso(one.first), "last": iso(one.last), **fields}


def _why(one: DeadGroup) -> str:
    """Return what tells most: of a message that has spent its retries, its last error."""
    return one.error if one.error and one.reason == RETRIES_SPENT else one.reason


def _matching_reader(queue: Any, wanted: DeadFilter) -> Callable[..., Page]:
    def read(*, limit: int, cursor: str | None) -> Page:
        page = queue.list(State.DEAD, limit=limit, cursor=cursor)
        return Page([message for message in page.messages if wanted.matches(message)], page.cursor)

    return read


@dead.command(short_help="Send dead messages again.")
@_selection_options
@retries_option("the retries it was sent with")
@click.option("--rate", metavar="N/UNIT", help="Let so many become due in a time: 50/s, 5/m.")
@click.option(
    "--edit", type=click.File("rb"), metavar="FILE", help="Send those of FILE, with its payloads; - is stdin."
)
@click.option("--app", metavar="MODULE:QUEUE", help="With --edit: encrypt the payloads with the keys of this queue.")
@click.pass_obj
def redrive(
    session: Session,
    queue: str,
    selection: DeadSelection,
    *,
    engine: str,
    retries: int | None,
    rate: str | None,
    edit: IO[bytes] | None,
    app: str | None,
    as_json: bool,
) -> Exit:
    """Send dead messages of QUEUE again, due now: by id (its last death) or entry, by a filter, or all.

    With --rate, they become due one after another, the first now.

    With --edit, send the messages of FILE with the payloads that they have there: lines of JSON as those of
    `dead list --json` or --jsonl, or {"id" or "entry", "payload"}. If a line is wrong, nothing is sent. List with
    --reveal what the queue redacts.
    The payloads of a queue that encrypts are encrypted with the keys of --app.

    A dead message stays if a message with its id is alive; if you gave the id, the exit code is 1. Exit code 3 if an
    id is not in the dead letter.

    JSON: {"queue", "matched", "redriven", "exists", "gone", "dry_run"}, and with --edit "changed" and "unchanged".
    """
    if rate is not None:
        ENGINES[engine].capabilities.require(Feature.DELAYS)
    paced = {} if rate is None else {"rate": rate}
    if edit is not None:
        ENGINES[engine].capabilities.require(Feature.REPLACE)
        selection.check_edit()
        payloads = read_edited(edit)
        if ENGINES[engine].capabilities.has(Feature.REDACTION) and session.check_queue_exists(queue):
            check_nothing_hidden(payloads)
        opened = ENGINES[engine].commands(session).open_dead(queue, reveal=True)  # nothing of it is shown
        edited = sealed(payloads, opened, app)
        how = {**paced, "retries": retries, "payloads": edited.payloads}
        result = Redriven(0, 0) if selection.dry_run else opened.dead.redrive(**how)
        return _report_edited(queue, edited, result, dry_run=selection.dry_run, as_json=as_json)
    if app is not None:
        raise click.UsageError("--app goes with --edit")
    selection.check()
    opened = ENGINES[engine].commands(session).open_dead(queue)
    matched = selection.confirm(opened, "Send {} of {} again?")
    done = [opened.dead.redrive(**one, retries=retries, **paced) for one in selection.arguments()]
    found = {"redriven": sum(one.redriven for one in done), "exists": sum(one.exists for one in done)}
    code = selection.report(queue, matched, found, "redrive", "redrove", as_json=as_json)
    _note_exists(found["exists"])
    return Exit.FAILURE if selection.ids and found["exists"] else code


def _note_exists(exists: int) -> None:
    if exists:
        print_note(f"{pluralize(exists, 'message')} not redriven: a message with the same id is alive")


def _report_edited(queue: str, edited: Edited, done: Redriven, *, dry_run: bool, as_json: bool) -> Exit:
    """Print what became of the messages of a file; return the exit code."""
    matched = len(edited.payloads)
    counts = {"matched": matched, "redriven": done.redriven, "exists": done.exists, "gone": len(done.gone)}
    differ = {"changed": edited.changed, "unchanged": edited.unchanged}
    number, verb = (matched, "would redrive") if dry_run else (done.redriven, "redrove")
    text = f"{verb} {pluralize(number, 'message')}; payloads in the file: {edited.changed:,} changed"
    text += f", {edited.unchanged:,} unchanged"
    print_result({"queue": queue, **counts, **differ, "dry_run": dry_run}, text, as_json=as_json)
    for which in done.gone:
        print_note(f"{which} not found in the dead letter")
    _note_exists(done.exists)
    return Exit.FAILURE if done.exists else Exit.NOT_FOUND if done.gone else Exit.OK


@dead.command(short_help="Delete dead messages.")
@_selection_options
@click.pass_obj
def purge(session: Session, queue: str, selection: DeadSelection, *, engine: str, as_json: bool) -> Exit:
    """Delete dead messages of QUEUE: by id (its last death) or entry, by a filter, or all.

    Exit code 3 if an id is not in the dead letter.

    JSON: {"queue", "matched", "purged", "gone", "dry_run"}.
    """
    selection.check()
    opened = ENGINES[engine].commands(session).open_dead(queue)
    matched = selection.confirm(opened, "Delete {} of {} permanently?")
    purged = sum(opened.dead.purge(**one) for one in selection.arguments())
    return selection.report(queue, matched, {"purged": purged}, "delete", "deleted", as_json=as_json)
