"""`delayq check`: whether a program could process what waits in its queues, without running it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click

from delayq.cli.support.exit_codes import Exit
from delayq.cli.support.options import json_option
from delayq.cli.support.output import json_fields, print_note, print_result
from delayq.queue.async_delay_queue import AsyncDelayQueue
from delayq.queue.delay_queue import DelayQueue
from delayq.values.text import pluralize

if TYPE_CHECKING:
    from delayq.queue.sweeps.handler_check import HandlerCheck, HandlerProblem


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
    if not all(isinstance(queue, DelayQueue | AsyncDelayQueue) for queue in queues):
        raise click.UsageError("a stream has no names of messages: check reads delay queues")
    checks = [(queue.name, _check(queue)) for queue in queues]
    found = [(name, problem) for name, one in checks for problem in one.problems]
    checked = sum(one.checked for _, one in checks)
    result = {
        "right": not found,
        "checked": checked,
        "problems": [{"queue": name, **json_fields(problem)} for name, problem in found],
    }
    print_result(result, *(_line(name, problem) for name, problem in found), as_json=as_json)
    if not as_json:
        many = sum(problem.count for _, problem in found)
        print_note(f"{pluralize(checked, 'message')} checked, {many:,} that no function takes")
    return Exit.UNHEALTHY if found else Exit.OK


def _check(queue: Any) -> HandlerCheck:
    if isinstance(queue, AsyncDelayQueue):
        return asyncio.run(_check_async(queue))
    with queue:
        found: HandlerCheck = queue.check()
        return found


async def _check_async(queue: AsyncDelayQueue[Any]) -> HandlerCheck:
    async with queue:
        return await queue.check()


def _line(queue: str, problem: HandlerProblem) -> str:
    more = ", …" if problem.count > len(problem.ids) else ""
    dead = f", {problem.dead:,} dead" if problem.dead else ""
    return f"{queue}  {problem.count:,}{dead}  {problem.reason}  ({', '.join(problem.ids)}{more})"
