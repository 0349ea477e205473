"""`delayq rekey`: encrypts what a queue has stored with the first key of its program."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click

from delayq.cli.support.exit_codes import CommandError, Exit
from delayq.cli.support.options import json_option
from delayq.cli.support.output import json_fields, print_result
from delayq.queue.async_delay_queue import AsyncDelayQueue
from delayq.queue.delay_queue import DelayQueue

if TYPE_CHECKING:
    from delayq.queue.sweeps.rekeying import Rekeyed

MAX_SHOWN = 10
"""Unreadable payloads that are named for people."""


@click.command()
@click.argument("target", metavar="MODULE:QUEUE")
@json_option
def rekey(target: str, *, as_json: bool) -> None:
    """Encrypt what waits or is dead in the queue of the program MODULE with its first key, beside running workers.

    What is being processed, or changes meanwhile, is left as it is: run the command again until nothing is left. If it
    was interrupted, run it again. Results are not encrypted again.

    Exit code 4 if something is encrypted with a key that the program does not have.

    JSON: {"queue", "rekeyed", "already", "left", "unreadable", "missing": [the ids of keys, …], "unreadable_ids": [the
    first 100, …]}; these are ids, entries of the dead letter, and names of schedules.
    """
    from delayq.cli.support.app_loader import find_queue

    queue = find_queue(target)
    if not isinstance(queue, DelayQueue | AsyncDelayQueue):
        raise click.UsageError("the entries of a stream cannot be changed: keep the old key until they are consumed")
    done = asyncio.run(_rekey_async(queue)) if isinstance(queue, AsyncDelayQueue) else _rekey(queue)
    rest = f", {done.unreadable:,} unreadable" if done.unreadable else ""
    text = f"rekeyed {done.rekeyed:,}, {done.already:,} already, {done.left:,} left{rest}"
    if named := ", ".join(done.unreadable_ids[:MAX_SHOWN]):
        text += f": {named}{', …' if done.unreadable > MAX_SHOWN else ''}"
    print_result({"queue": queue.name, **json_fields(done)}, text, as_json=as_json)
    if done.missing:
        raise CommandError(f"missing keys: {', '.join(done.missing)}", Exit.UNHEALTHY)


def _rekey(queue: DelayQueue[Any]) -> Rekeyed:
    with queue:
        return queue.rekey()


async def _rekey_async(queue: AsyncDelayQueue[Any]) -> Rekeyed:
    async with queue:
        return await queue.rekey()
