"""`delayq partitions`: shows over how many partitions a queue is spread, and changes their number."""

from __future__ import annotations

from typing import Any

import click

from delayq.broker.engine import Feature
from delayq.cli.support.options import json_option, queue_with
from delayq.cli.support.output import print_json, print_line, print_note, print_rich, table
from delayq.cli.support.session import Session
from delayq.queue.placing.layout import MAX_PARTITIONS, StoredLayout
from delayq.queue.placing.repartitioning import (
    MoveProgress,
    PartitionState,
    change_partitions,
    read_partitions,
)
from delayq.values.text import pluralize


@click.command()
@queue_with(Feature.REGISTRY)
@click.option(
    "--to",
    type=click.IntRange(1, MAX_PARTITIONS),
    metavar="N",
    help="Spread the queue over N partitions, 1 for a plain queue; its messages move.",
)
@json_option
@click.pass_obj
def partitions(session: Session, queue: str, *, to: int | None, as_json: bool) -> None:
    """Show the partitions of QUEUE, and with --to change their number.

    Producers and workers may run meanwhile. Every message is in exactly one place at each moment. If the command is
    killed, run it again: it goes on. What a worker holds is moved once it is settled, and the command waits for that.

    JSON: {"queue", "partitions", "epoch", "moving_from", "moved", "states": [{"name", "messages", "dead", "misplaced",
    "on_the_way"}, …]}. moving_from is null if no move is under way, moved how much --to has moved, misplaced what is
    still to move, and on_the_way batches that have left a partition and have not arrived.
    """
    session.check_queue_exists(queue)
    moved = 0
    if to is not None:
        done = session.executor.perform(change_partitions(session.prefix, queue, to, tell=_tell))
        moved = done.moved if done else 0
        if done is None:
            print_note(f"{queue} has {pluralize(to, 'partition')}: nothing to do")
    stage, states = session.executor.perform(read_partitions(session.prefix, queue))
    if as_json:
        print_json({"queue": queue, **_fields(stage, states), "moved": moved})
    else:
        _print(queue, stage, states)


def _tell(progress: MoveProgress) -> None:
    waits = f"; {progress.leased} are being processed, and wait" if progress.leased else ""
    print_note(f"{progress.partition}: moved {progress.moved}{waits}")


def _fields(stage: StoredLayout, states: list[PartitionState]) -> dict[str, Any]:
    return {
        "partitions": stage.partitions,
        "epoch": int(stage.epoch or 0),
        "moving_from": stage.moving_from,
        "states": [one._asdict() for one in states],
    }


def _print(queue: str, stage: StoredLayout, states: list[PartitionState]) -> None:
    moving = f", moving from {stage.moving_from}" if stage.moving_from else ""
    print_line(f"{queue}: {pluralize(stage.partitions, 'partition')}, epoch {stage.epoch or 0}{moving}")
    rows = [(one.name, one.messages, one.dead, one.misplaced, one.on_the_way) for one in states]
    print_rich(table(["partition", "messages", "dead", "to move", "on the way"], rows))
