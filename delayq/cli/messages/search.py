"""`delayq search`: the messages that contain a text, as far as they have been read."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from delayq.broker.engine import Feature
from delayq.cli.messages.message_formats import message_json, payload_of
from delayq.cli.support.exit_codes import interrupted
from delayq.cli.support.options import json_option, reveal_option, states_option
from delayq.cli.support.output import print_json, print_note, print_rich, table
from delayq.cli.support.progress import progress_bars
from delayq.cli.support.session import Session
from delayq.cli.support.several import queues_with
from delayq.privacy.redaction import preview
from delayq.queue.sweeps.search import WHERE, Match
from delayq.values.states import State
from delayq.values.text import pluralize, relative_time

STEP = 5_000
"""Messages that are read before the progress is shown."""
_TITLES = ["state", "id", "due", "in", "text"]


@click.command()
@queues_with(Feature.SEARCH)
@click.argument("text")
@click.option(
    "--in",
    "where",
    type=click.Choice(WHERE),
    multiple=True,
    default=WHERE,
    show_default=False,
    metavar="WHERE",
    help="Search payload, error or headers; repeatable.  [default: all three]",
)
@states_option("Search")
@click.option("--limit", type=click.IntRange(1, 1000), metavar="N", default=50, help="Find at most N messages.")
@click.option("--cursor", metavar="CURSOR", help="Start where an earlier search ended.")
@reveal_option
@json_option
@click.pass_obj
def search(
    session: Session,
    /,
    queue: str,
    text: str,
    *,
    where: tuple[str, ...],
    states: tuple[str, ...],
    limit: int,
    cursor: str | None,
    reveal: bool,
    as_json: bool,
) -> None:
    """Find the messages of QUEUE that contain TEXT in their payload, headers, or error (or reason of death).

    Case matters. The messages are read one after the other, also those of the dead letter: a million take about ten
    seconds. A search that was interrupted, or has found enough, prints a cursor to go on with. What is encrypted is not
    searched, nor what the queue redacts.

    JSON: {"matches": [{"in": ["payload", …], … as in `delayq list`}, …], "searched", "cursor"}; "cursor" is null when
    all messages have been read.
    """
    opened = session.existing_queue(queue, reveal=reveal)
    counts = opened.counts()
    total = sum(getattr(counts, state) for state in states) if cursor is None else None
    matches: list[Match] = []
    searched = 0
    try:
        with progress_bars() as add_bar:
            advance = add_bar(f"searching {queue}")
            while True:
                page = opened.search(
                    text,
                    where=where,
                    state=states,
                    limit=limit - len(matches),
                    max_searched=STEP,
                    cursor=cursor,
                )
                matches += page.matches
                searched, cursor = searched + page.searched, page.cursor
                advance(searched, total)
                if cursor is None or len(matches) == limit:
                    break
    except KeyboardInterrupt as error:
        if cursor is not None:
            _print(matches, searched, cursor, session.now, as_json=as_json)
        raise interrupted(error) from error
    _print(matches, searched, cursor, session.now, as_json=as_json)


def _print(matches: list[Match], searched: int, cursor: str | None, now: datetime, *, as_json: bool) -> None:
    if as_json:
        found = [{"in": one.where, **message_json(one.message)} for one in matches]
        print_json({"matches": found, "searched": searched, "cursor": cursor})
        return
    if matches:
        print_rich(table(_TITLES, [_row(one, now) for one in matches], fill=True))
    more = "" if cursor is None else f"; more: --cursor {cursor}"
    print_note(f"found {len(matches):,} in {pluralize(searched, 'message')}{more}")


def _row(match: Match, now: datetime) -> list[Any]:
    message = match.message
    text = preview(payload_of(message), message.size)
    if "payload" not in match.where and "error" in match.where:
        text = f"{message.reason}: {message.error}" if message.state is State.DEAD else message.error
    return [str(message.state), message.id, relative_time(message.due, now), ", ".join(match.where), text]
