"""`delayq doctor`: checks queues and their Redis server, and repairs them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import starmap
from typing import TYPE_CHECKING, Any

import click

from delayq.broker.engine import Feature
from delayq.cli.support.exit_codes import Exit
from delayq.cli.support.options import QUEUE, ParamType, dry_run_option, engine_option, json_option
from delayq.cli.support.output import json_fields, print_note, print_result
from delayq.cli.support.session import Session
from delayq.cli.support.zones import zoned_text
from delayq.queue.repairing.repair_report import SHOWN, Checkup, Finding, FindingKind
from delayq.values.text import pluralize

if TYPE_CHECKING:
    from delayq.queue.async_delay_queue import AsyncDelayQueue
    from delayq.queue.delay_queue import DelayQueue


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
@json_option
@click.pass_obj
def doctor(session: Session, names: tuple[str, ...], *, repair: bool, dry_run: bool, deep: bool, as_json: bool) -> Exit:
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
    fix = repair and not dry_run
    checkups = [
        _check_program(name, deep=deep, fix=fix)
        if ":" in name
        else _check(session.queue(name, codec="bytes"), deep=deep, fix=fix)
        for name in chosen
    ]
    findings = _findings(checkups)
    healthy = all(checkup.healthy for checkup in checkups)
    found = [{"queue": name, **json_fields(finding)} for name, finding in findings]
    print_result({"healthy": healthy, "findings": found}, *starmap(_line, findings), as_json=as_json)
    if not (findings or as_json):
        print_note(f"no problems found in {pluralize(len(chosen), 'queue')}")
    return Exit.OK if healthy else Exit.UNHEALTHY


def _check(queue: DelayQueue[Any], *, deep: bool, fix: bool) -> Checkup:
    return queue.repair(deep=deep) if fix else queue.examine(deep=deep)


def _check_program(target: str, *, deep: bool, fix: bool) -> Checkup:
    """Check the queue of a program on its own server."""
    from delayq.cli.support.app_loader import find_queues
    from delayq.queue.async_delay_queue import AsyncDelayQueue
    from delayq.queue.delay_queue import DelayQueue

    (queue,) = find_queues([target])
    if isinstance(queue, DelayQueue):
        with queue:
            checkup, names = _check(queue, deep=deep, fix=fix), queue.schedules.orphans()
    elif isinstance(queue, AsyncDelayQueue):
        checkup, names = asyncio.run(_check_async(queue, deep=deep, fix=fix))
    else:
        raise click.UsageError(f"{target} is a stream: doctor checks delay queues")
    finding = Finding(FindingKind.SCHEDULE, len(names), 0, "", tuple(names[:SHOWN]))
    return replace(checkup, findings=(*checkup.findings, finding)) if names else checkup


async def _check_async(queue: AsyncDelayQueue[Any], *, deep: bool, fix: bool) -> tuple[Checkup, list[str]]:
    async with queue:
        checkup = await (queue.repair(deep=deep) if fix else queue.examine(deep=deep))
        return checkup, await queue.schedules.orphans()


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
