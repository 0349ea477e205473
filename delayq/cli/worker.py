"""`delayq worker`: processing the messages of a queue, in one process or several."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from delayq.cli.deliver import adapter, check, deliver_options, hand_down, open_queue
from delayq.cli.engines import engine_option
from delayq.cli.logs import LEVELS, configure_logging
from delayq.cli.options import DURATION, group_option
from delayq.cli.session import Session

if TYPE_CHECKING:
    from delayq.cli.target import AnyQueue

MOST_PROCESSES = 512

log = logging.getLogger("delayq.worker")


@click.command()
@click.argument("words", nargs=-1, metavar="[MODULE:QUEUE]")
@click.option("--concurrency", type=click.IntRange(1, 10_000), metavar="N", help="Callbacks at a time in each process.")
@click.option(
    "--processes",
    type=click.IntRange(1, MOST_PROCESSES),
    default=1,
    show_default=True,
    metavar="N",
    help="Worker processes.",
)
@click.option("--grace", type=DURATION, help="How long a stop waits for running callbacks.")
@click.option("--burst", is_flag=True, help="Return when nothing is due any more.")
@click.option("--log-level", type=click.Choice(LEVELS), default="info", show_default=True, help="What is logged.")
@click.option("--log-json", is_flag=True, help="Log JSON lines.")
@deliver_options
@engine_option("delay", "streams", lacking="callback consumer")
@group_option
@click.option("--supervised", hidden=True, allow_from_autoenv=False, type=(int, int), metavar="NUMBER CHANNEL")
@click.pass_context
def worker(
    ctx: click.Context,
    /,
    words: tuple[str, ...],
    *,
    concurrency: int | None,
    processes: int,
    grace: timedelta | None,
    burst: bool,
    log_level: str,
    log_json: bool,
    supervised: tuple[int, int] | None,
    **delivery: Any,
) -> None:
    """Process the messages of QUEUE, an object in MODULE: a queue with a callback.

    It is a DelayQueue, a StreamQueue, or the asyncio twin of one. MODULE is also looked for in the current folder. What
    is not given here is as the queue says. A queue that was made without a URL uses --url.

    SIGTERM and SIGINT (Ctrl-C) let running callbacks finish for up to --grace; a second one cuts them off (exit code
    1). With --processes a worker that dies is replaced. After a loss of Redis a worker goes on by itself.

    With --queue and --deliver no MODULE is needed: each message is logged, posted to a webhook, mailed, or given to a
    program, which stands at the end of the line: --deliver command -- PROGRAM ARGUMENT…. See 'delayq docs deliver'.
    """
    session: Session = ctx.obj
    check(ctx, words)
    if session.url:
        os.environ["DELAYQ_URL"] = session.url
    configure_logging(log_level, as_json=log_json)
    if processes > 1:
        from delayq.cli.supervise import Supervisor

        hand_down(ctx)
        ctx.exit(Supervisor(partial(_command, ctx), processes).run())

    from delayq.cli.serve import Service, serve
    from delayq.cli.supervise import Channel

    channel = Channel(*supervised) if supervised else None
    if supervised and supervised[0] > 1:
        # One of several is enough to warn of what is wrong with Redis.
        logging.getLogger("delayq.doctor").setLevel(logging.ERROR)
    queue, end = _delivering(session, delivery, words) if delivery["deliver"] else _found(session, *words)
    service = Service(
        concurrency=concurrency,
        grace=grace,
        burst=burst,
        patience=session.timeout.total_seconds(),
        started=channel.report_started if channel else lambda: None,
        end=end,
    )
    ctx.exit(serve(queue, service))


def _found(session: Session, target: str) -> tuple[AnyQueue, Callable[[], None]]:
    """Return the queue that a module has, and nothing that is to be done at the end."""
    from delayq.cli.target import find_queue
    from delayq.queue import AsyncDelayQueue, DelayQueue

    queue = find_queue(target)
    if isinstance(queue, DelayQueue | AsyncDelayQueue) and queue.prefix != session.prefix:
        log.warning("%s has the prefix %r, not %r", queue.name, queue.prefix, session.prefix)
    return queue, lambda: None


def _delivering(
    session: Session, options: dict[str, Any], words: tuple[str, ...]
) -> tuple[AnyQueue, Callable[[], None]]:
    """Return a queue whose messages are delivered as the options say, and what closes the adapter."""
    deliver = adapter(options, words)
    queue = open_queue(session, options)
    queue.callback(deliver)
    return queue, deliver.close


def _command(ctx: click.Context, number: int, channel: int) -> list[str]:
    """Return the options with which a child of this worker is started: all of them, whatever they came from.

    Those of a delivery it takes from the environment.
    """
    root, given = ctx.find_root().params, ctx.params
    command = ["--prefix", root["prefix"], "--timeout", f"{root['timeout'].total_seconds()}"]
    command += ["--traceback"] if root["traceback"] else []
    command += ["worker", "--processes", "1", "--log-level", given["log_level"]]
    if given["concurrency"] is not None:
        command += ["--concurrency", str(given["concurrency"])]
    if given["grace"] is not None:
        command += ["--grace", f"{given['grace'].total_seconds()}"]
    command += [flag for flag in ("--burst", "--log-json") if given[flag[2:].replace("-", "_")]]
    return [*command, "--supervised", str(number), str(channel), "--", *given["words"]]
