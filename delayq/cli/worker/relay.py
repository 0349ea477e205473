"""`delayq relay`: moves due messages of a queue into a Redis stream."""

from __future__ import annotations

import click

from delayq.broker.engine import Feature
from delayq.cli.support.logs import configure_logging, log_options
from delayq.cli.support.options import queue_with
from delayq.cli.support.output import print_line
from delayq.cli.support.session import Session
from delayq.queue.consuming.stop_signals import handle_signals
from delayq.safe_log import SafeLog
from delayq.values.text import pluralize

log = SafeLog("delayq.relay")


@click.command()
@queue_with(Feature.DELAYS)
@click.argument("stream", metavar="STREAM")
@click.option("--burst", is_flag=True, help="Exit once no message is due.")
@log_options
@click.pass_obj
def relay(session: Session, queue: str, stream: str, *, burst: bool, log_level: str, log_json: bool) -> None:
    """Move the messages of QUEUE into the Redis stream STREAM when they are due, each exactly once.

    Consumers in any language read the stream: an entry has the fields id, payload, retries, due (ms since 1970) and,
    if there are any, headers (JSON). Several relays of one queue share the work. In a Redis Cluster the name of the
    stream must contain the name of the queue in braces.

    SIGTERM or SIGINT (Ctrl-C) stops the relay within about a second. If Redis is lost, the relay reconnects.
    """
    from delayq.streams import Relay

    configure_logging(log_level, as_json=log_json)
    moving = Relay(session.queue(queue, codec="bytes"), stream)
    moving.open()  # fails here if Redis cannot be reached, instead of retrying for ever
    with handle_signals(lambda *_: moving.stop()):
        log.info("relaying %s to %s", queue, stream, extra={"queue": queue, "stream": stream})
        moved = moving.run(burst=burst)
    print_line(f"moved {pluralize(moved, 'message')} of {queue} to {stream}")
