"""`delayq relay`: moving the due messages of a queue into a Redis stream."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from delayq.cli.engines import delay_queue
from delayq.cli.logs import LEVELS, configure_logging
from delayq.cli.output import put
from delayq.cli.session import Session
from delayq.cli.text import counted

if TYPE_CHECKING:
    from delayq.streams import Relay

log = logging.getLogger("delayq.relay")


@click.command()
@delay_queue("delays")
@click.argument("stream", metavar="STREAM")
@click.option("--burst", is_flag=True, help="Return when nothing is due any more.")
@click.option("--log-level", type=click.Choice(LEVELS), default="info", show_default=True, help="What is logged.")
@click.option("--log-json", is_flag=True, help="Log JSON lines.")
@click.pass_obj
def relay(session: Session, queue: str, stream: str, *, burst: bool, log_level: str, log_json: bool) -> None:
    """Move the messages of QUEUE into the Redis stream STREAM as they become due, each exactly once.

    They are read there by consumers in any language: an entry has the fields id, payload, retries, due (ms since 1970)
    and headers (JSON, if there are some). Several relays of one queue share the work. In a Redis Cluster the name of
    the stream has the name of the queue in braces.

    SIGTERM and SIGINT (Ctrl-C) end it within about a second. After a loss of Redis it goes on by itself.
    """
    from delayq.streams import Relay

    configure_logging(log_level, as_json=log_json)
    moving = Relay(session.queue(queue, codec="bytes"), stream)
    moving.open()  # where Redis is out of reach, whoever starts a relay wants to know
    with _stopped_by_signals(moving):
        log.info("relaying %s to %s", queue, stream, extra={"queue": queue, "stream": stream})
        moved = moving.run(burst=burst)
    put(f"moved {counted(moved, 'message')} of {queue} to {stream}")


@contextmanager
def _stopped_by_signals(moving: Relay) -> Iterator[None]:
    def stop(*_: Any) -> None:
        moving.stop()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
