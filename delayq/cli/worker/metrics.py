"""`delayq metrics`: the metrics of queues for Prometheus, read from Redis, without a worker."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import click

from delayq.broker.engine import Feature
from delayq.cli.support.logs import configure_logging, log_options
from delayq.cli.support.options import PATTERN, QUEUE, engine_option
from delayq.cli.support.session import Session
from delayq.cli.worker.worker_endpoint import serving
from delayq.queue.consuming.consumer import SIGNALS_WITHIN
from delayq.queue.consuming.stop_signals import handle_signals
from delayq.safe_log import SafeLog

if TYPE_CHECKING:
    from delayq.metrics.queue_collector import QueueCollector

log = SafeLog("delayq.metrics")


@click.command()
@engine_option(Feature.HISTORY)
@click.argument("names", metavar="[QUEUE]...", type=QUEUE, nargs=-1)
@click.option("--queues", type=PATTERN, metavar="PATTERN", help="Serve every queue that matches, such as 'tenant-*'.")
@click.option("--port", type=click.IntRange(0, 65535), default=9120, show_default=True, help="Listen on this port.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Listen on this address; 0.0.0.0 for all.")
@click.option("--once", is_flag=True, help="Print the metrics and exit.")
@log_options
@click.pass_obj
def metrics(
    session: Session,
    names: tuple[str, ...],
    *,
    queues: str | None,
    port: int,
    host: str,
    once: bool,
    log_level: str,
    log_json: bool,
) -> None:
    """Serve the metrics of each QUEUE, or of all queues, to Prometheus, at /metrics (pip install 'delayq[prometheus]').

    Each scrape reads all figures from Redis, in a few calls for each queue, whose cost does not depend on the number of
    messages. No worker is needed. One exporter is enough for all queues of a prefix.

    A queue has series while it is in use: new queues appear, and those that are gone vanish. While Redis does not
    answer within the --timeout of delayq, a scrape fails with status 503, and Prometheus sets up to 0. /readyz fails
    as well, /livez does not. It needs the rights of an inspector. SIGTERM or SIGINT (Ctrl-C) stops it.
    """
    from delayq.metrics.queue_collector import QueueCollector

    if names and queues:
        raise click.UsageError("give the names of queues or --queues, not both")
    collector = QueueCollector(*names, pattern=queues or "*", **session.options)
    try:
        if once:
            _print(session, collector, names)
        else:
            configure_logging(log_level, as_json=log_json)
            _serve(collector, host, port)
    finally:
        collector.close()


def _print(session: Session, collector: QueueCollector, names: tuple[str, ...]) -> None:
    """Print the metrics as Prometheus reads them; raise `NotFoundError` for a queue that was never used."""
    from delayq.metrics.families import choose_encoder

    for name in names:
        session.check_queue_exists(name)
    encode, _ = choose_encoder("")
    click.echo(encode(collector), nl=False)


def _serve(collector: QueueCollector, host: str, port: int) -> None:
    """Serve until a signal comes."""
    stopped = threading.Event()
    with handle_signals(lambda *_: stopped.set()), serving((host, port), collector, unready=collector.unready):
        while not stopped.wait(SIGNALS_WITHIN):  # in slices, between which handlers of signals run
            pass
    log.info("stopped")
