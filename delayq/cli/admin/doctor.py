"""`delayq doctor`, `check` and `rekey`: look at queues, and at those of programs, and repair what they hold."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from itertools import starmap
from operator import methodcaller
from typing import TYPE_CHECKING, Any

import click

from delayq.broker.engine import Feature
from delayq.cli.support.cold_notes import tell_cold
from delayq.cli.support.exit_codes import CommandError, Exit
from delayq.cli.support.options import QUEUE, ParamType, dry_run_option, engine_option, json_option
from delayq.cli.support.output import json_fields, print_note, print_result
from delayq.cli.support.session import Session
from delayq.cli.support.zones import zoned_text
from delayq.queue.async_delay_queue import AsyncDelayQueue
from delayq.queue.delay_queue import DelayQueue
from delayq.queue.inspecting.cold_tier import count_cold
from delayq.queue.repairing.repair_report import SHOWN, Checkup, Finding, FindingKind
from delayq.values.text import pluralize

if TYPE_CHECKING:
    from delayq.queue.sweeps.handler_check import HandlerProblem


class _QueueOrProgram(ParamType):
    """The name of a queue, or MODULE:QUEUE: no name of a queue has a colon."""

    name = "queue"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if ":" in value else QUEUE.convert(value, param, ctx)


@click.command()
@engine_option(Feature.REPAIR)
@click.argument("names", metavar="[QUEUE]...", type=_QueueOrProgram(), nargs=-1)
@click.option("--repair", is_flag=True, help="Repair what can be repaired.")
@dry_run_option
@click.option("--deep", is_flag=True, help="Check every message and the dead letter; by default only due messages.")
@click.option("--outbox", metavar="DATABASE_URL", help="Also check the outbox in this database.")
@json_option
@click.pass_obj
def doctor(
    session: Session,
    names: tuple[str, ...],
    *,
    repair: bool,
    dry_run: bool,
    deep: bool,
    outbox: str | None,
    as_json: bool,
) -> Exit:
    """Check each QUEUE, or all queues, and their Redis server; print one line per problem.

    Changes nothing without --repair. A repair loses no message that still has its payload: one that is in no structure
    is delivered now. Workers may run meanwhile.

    MODULE:QUEUE, as for a worker, checks the queue of a program, and names schedules that the program has declared, but
    no longer declares.

    Exit code 4 if a problem was found and not repaired.

    JSON: {"healthy", "findings": [{"queue", "kind", "count", "mended", "text", "ids"}, …]}; "queue" is null for a
    problem of the server, "mended" is the number of repaired messages.
    """
    plain = [name for name in names if ":" not in name]
    for name in plain:
        session.check_queue_exists(name)
    chosen = list(dict.fromkeys(names or session.queue_names()))
    act = "repair" if repair and not dry_run else "examine"
    examine = methodcaller(act, deep=deep)
    checkups: list[Checkup] = [
        _check_program(name, examine) if ":" in name else examine(session.queue(name, codec="bytes")) for name in chosen
    ]
    if outbox is not None:
        from delayq.cli.worker.outbox import examine_outbox

        checkups += examine_outbox(outbox, chosen if names else None)
    findings = _findings(checkups)
    healthy = all(checkup.healthy for checkup in checkups)
    found = [{"queue": name, **json_fields(finding)} for name, finding in findings]
    print_result({"healthy": healthy, "findings": found}, *starmap(_line, findings), as_json=as_json)
    if not (findings or as_json):
        print_note(f"no problems found in {pluralize(len(chosen), 'queue')}")
    return Exit.OK if healthy else Exit.UNHEALTHY


def _ask(queue: Any, refusal: str, *calls: Callable[[Any], Any]) -> list[Any]:
    """Return the results of calls on the queue of a program, over its own connections; only of a delay queue."""
    if isinstance(queue, AsyncDelayQueue):
        return asyncio.run(_ask_async(queue, *calls))
    if not isinstance(queue, DelayQueue):
        raise click.UsageError(refusal)
    with queue:
        return [call(queue) for call in calls]


async def _ask_async(queue: AsyncDelayQueue[Any], *calls: Callable[[Any], Any]) -> list[Any]:
    async with queue:
        return [await call(queue) for call in calls]


def _check_program(target: str, examine: Callable[[Any], Any]) -> Checkup:
    """Check the queue of a program on its own server."""
    from delayq.cli.support.app_loader import find_queues

    (queue,) = find_queues([target])
    refusal = f"{target} is a stream: doctor checks delay queues"
    checkup: Checkup
    checkup, names = _ask(queue, refusal, examine, lambda queue: queue.schedules.orphans())
    finding = Finding(FindingKind.SCHEDULE, len(names), 0, "", tuple(names[:SHOWN]))
    return replace(checkup, findings=(*checkup.findings, finding)) if names else checkup


def _findings(checkups: list[Checkup]) -> list[tuple[str | None, Finding]]:
    """Return the findings with their queue; those about the server, which all queues share, once and with None."""
    return list(
        dict.fromkeys(
            (None if finding.kind is FindingKind.SERVER else checkup.queue, finding)
            for checkup in checkups
            for finding in checkup.findings
        )
    )


def _line(queue: str | None, finding: Finding) -> str:
    if queue is None:
        return f"server  {finding.text}"
    problem = str(finding.kind) if not finding.text else f"{finding.kind}: {zoned_text(finding.text)}"
    if finding.ids:
        more = ", …" if finding.count > len(finding.ids) else ""
        problem += f": {finding.count:,} ({', '.join(finding.ids)}{more})"
    return f"{queue}  {problem}{'  repaired' if finding.mended else ''}"


@click.command()
@click.argument("targets", metavar="MODULE[:QUEUE]...", nargs=-1, required=True)
@json_option
def check(targets: tuple[str, ...], *, as_json: bool) -> Exit:
    """Check that the program MODULE could process all messages that wait or are dead in its queues.

    Decodes every payload, and binds the arguments of tasks to the parameters that they have today; runs none of them,
    and changes nothing. Run it with a new version before you deploy it. The queues are those of the module, on their
    own servers; reading rights are enough.

    Exit code 4 if a message has no function that takes it.

    JSON: {"right", "checked", "problems": [{"queue", "reason", "count", "dead", "ids"}, …]}; "ids" are some of the
    messages, "dead" is how many of the count are in the dead letter.
    """
    from delayq.cli.support.app_loader import find_queues

    queues = find_queues(list(targets))
    refusal = "a stream has no names of messages: check reads delay queues"
    if not all(isinstance(queue, DelayQueue | AsyncDelayQueue) for queue in queues):
        raise click.UsageError(refusal)
    checks = [(queue.name, *_ask(queue, refusal, methodcaller("check"))) for queue in queues]
    found = [(name, problem) for name, one in checks for problem in one.problems]
    checked = sum(one.checked for _, one in checks)
    result = {
        "right": not found,
        "checked": checked,
        "problems": [{"queue": name, **json_fields(problem)} for name, problem in found],
    }
    print_result(result, *(_problem_line(name, problem) for name, problem in found), as_json=as_json)
    if not as_json:
        many = sum(problem.count for _, problem in found)
        print_note(f"{pluralize(checked, 'message')} checked, {many:,} that no function takes")
    return Exit.UNHEALTHY if found else Exit.OK


def _problem_line(queue: str, problem: HandlerProblem) -> str:
    more = ", …" if problem.count > len(problem.ids) else ""
    dead = f", {problem.dead:,} dead" if problem.dead else ""
    return f"{queue}  {problem.count:,}{dead}  {problem.reason}  ({', '.join(problem.ids)}{more})"


MAX_SHOWN = 10
"""Unreadable payloads that are named for people."""


@click.command()
@click.argument("target", metavar="MODULE:QUEUE")
@json_option
def rekey(target: str, *, as_json: bool) -> None:
    """Encrypt what waits or is dead in the queue of the program MODULE with its first key, beside running workers.

    What is being processed, or changes meanwhile, is left as it is: run the command again until nothing is left. If it
    was interrupted, run it again. Results, and what is cold, are not encrypted again: bring cold messages back before.

    Exit code 4 if something is encrypted with a key that the program does not have.

    JSON: {"queue", "rekeyed", "already", "left", "unreadable", "missing": [the ids of keys, …], "unreadable_ids": [the
    first 100, …]}; these are ids, entries of the dead letter, and names of schedules.
    """
    from delayq.cli.support.app_loader import find_queue

    queue = find_queue(target)
    refusal = "the entries of a stream cannot be changed: keep the old key until they are consumed"
    done, cold = _ask(
        queue, refusal, methodcaller("rekey"), lambda one: one.executor.call(count_cold(one.context.calls))
    )
    tell_cold(cold, "not rekeyed")
    rest = f", {done.unreadable:,} unreadable" if done.unreadable else ""
    text = f"rekeyed {done.rekeyed:,}, {done.already:,} already, {done.left:,} left{rest}"
    if named := ", ".join(done.unreadable_ids[:MAX_SHOWN]):
        text += f": {named}{', …' if done.unreadable > MAX_SHOWN else ''}"
    print_result({"queue": queue.name, **json_fields(done)}, text, as_json=as_json)
    if done.missing:
        raise CommandError(f"missing keys: {', '.join(done.missing)}", Exit.UNHEALTHY)
