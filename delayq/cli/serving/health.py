"""`delayq health`: whether a queue is well, as one line and an exit code, for the probes of a service manager."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import click

from delayq.broker.engine import Feature
from delayq.broker.keys import Keys
from delayq.cli.support.exit_codes import Exit, NotFoundError
from delayq.cli.support.options import DURATION, json_option, queue_with
from delayq.cli.support.output import print_result
from delayq.cli.support.session import Session
from delayq.errors import ServerError
from delayq.queue.inspecting.counts import Stats, waiting_text
from delayq.queue.server_check import Trouble, survey
from delayq.values.text import format_duration, pluralize


@click.command()
@queue_with(Feature.WORKERS)
@click.option("--max-lag", type=DURATION, metavar="DURATION", help="Unhealthy if a due message has waited longer: 30s.")
@click.option("--max-dead", type=click.IntRange(0), metavar="N", help="Unhealthy if more are in the dead letter.")
@click.option("--min-workers", type=click.IntRange(1), metavar="N", help="Unhealthy if fewer workers report.")
@json_option
@click.pass_obj
def health(
    session: Session,
    queue: str,
    *,
    max_lag: timedelta | None,
    max_dead: int | None,
    min_workers: int | None,
    as_json: bool,
) -> Exit:
    """Tell in one line whether QUEUE is well: somebody consumes what is due, Redis takes writes, the options are met.

    Made for probes: it is quick, and loads no program of yours. While the queue is paused, it may lag.

    Exit code 4 if the queue is not well, 69 if Redis does not answer.

    lag and overdue are about what a consumer could start: not what is throttled, by a limit or a paused name.

    JSON: {"queue", "healthy", "problems", "lag", "overdue", "throttled", "dead", "workers", "paused"}; lag is in
    seconds, problems a list of texts.
    """
    stats, troubles = _read(session, queue)
    problems = [trouble.text for trouble in troubles if trouble.refuses]
    problems += _problems(stats, max_lag=max_lag, max_dead=max_dead, min_workers=min_workers)
    facts = {
        "queue": queue,
        "healthy": not problems,
        "problems": problems,
        "lag": stats.lag.total_seconds(),
        "overdue": stats.counts.overdue,
        "throttled": stats.counts.throttled,
        "dead": stats.counts.dead,
        "workers": stats.workers,
        "paused": stats.counts.paused is not None,
    }
    print_result(facts, f"{queue}: {'; '.join(problems) or _summary(stats)}", as_json=as_json)
    return Exit.UNHEALTHY if problems else Exit.OK


def _read(session: Session, queue: str) -> tuple[Stats, list[Trouble]]:
    """Read the counts, and what is wrong with the server; raise `NotFoundError` for a queue that was never used."""
    session.check_queue_exists(queue)
    found = session.stats([queue]).get(queue)
    if found is None:
        raise NotFoundError("queue", queue, [])
    if isinstance(found, ServerError):
        raise found
    return found, session.executor.perform(survey(Keys.of(session.prefix, queue))).troubles


def _problems(
    stats: Stats, *, max_lag: timedelta | None, max_dead: int | None, min_workers: int | None
) -> Iterator[str]:
    lag, dead = stats.lag, stats.counts.dead
    if min_workers is not None and stats.workers < min_workers:
        yield f"{pluralize(stats.workers, 'worker')}, should be at least {min_workers:,}"
    elif stats.nobody_consumes:
        yield f"nobody consumes: {waiting_text(stats)}"
    if max_lag is not None and lag > max_lag and not stats.counts.paused:
        yield f"a due message has waited for {_duration(lag)}, should be at most {_duration(max_lag)}"
    if max_dead is not None and dead > max_dead:
        yield f"{dead:,} dead, should be at most {max_dead:,}"


def _summary(stats: Stats) -> str:
    state = "paused" if stats.counts.paused else "well"
    counts = stats.counts
    figures = [pluralize(stats.workers, "worker"), f"{counts.overdue:,} overdue"]
    figures += [f"the first for {_duration(stats.lag)}"] if stats.lag >= timedelta(seconds=1) else []
    figures += [f"{counts.throttled:,} throttled"] if counts.throttled else []
    return ", ".join([state, *figures, f"{counts.dead:,} dead"])


def _duration(value: timedelta) -> str:
    return format_duration(value.total_seconds())
