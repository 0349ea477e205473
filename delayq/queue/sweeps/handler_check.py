"""Checks what waits or is dead against the functions of this process, without running any of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from delayq.broker.context import QueueContext
from delayq.broker.transport.operation import Operation
from delayq.errors import UndecodableError, short_repr
from delayq.queue.inspecting.inspector import MAX_ROWS, WHOLE, Inspector
from delayq.queue.inspecting.message_info import MessageInfo
from delayq.values.states import State

CHECKED = (State.PENDING, State.READY, State.RETRY, State.BACKOFF, State.THROTTLED, State.DEAD)
"""The states whose messages are checked."""
SHOWN = 3
"""Ids that are shown of each problem."""


@dataclass(frozen=True, slots=True)
class HandlerProblem:
    """A reason why messages could not be processed by the functions of this process."""

    reason: str
    count: int
    """How many messages."""
    dead: int
    """How many of them are in the dead letter."""
    ids: tuple[str, ...]
    """Some of them."""


@dataclass(frozen=True, slots=True)
class HandlerCheck:
    """The result of `check`: how many messages were checked, and the problems, the most frequent first."""

    checked: int
    problems: tuple[HandlerProblem, ...]

    @property
    def right(self) -> bool:
        """Whether every message that was checked has a function that takes it."""
        return not self.problems


@dataclass(slots=True)
class _Tally:
    """The messages with one problem: counted, and only some of them kept."""

    count: int = 0
    dead: int = 0
    ids: list[str] = field(default_factory=list)

    def add(self, message: MessageInfo) -> None:
        self.count += 1
        self.dead += message.state is State.DEAD
        if len(self.ids) < SHOWN:
            self.ids.append(message.id)


def check_handlers(context: QueueContext, problem_of: Callable[[MessageInfo, Any], str]) -> Operation[HandlerCheck]:
    """Read every message, page by page; `problem_of` tells what is wrong with one and its payload, '' for nothing."""
    raw = QueueContext(context.calls, context.settings, bytes, context.queue)
    inspector, checked = Inspector(raw), 0
    found: dict[str, _Tally] = defaultdict(_Tally)
    for state in CHECKED:
        cursor: str | None = None
        while True:
            page = yield from inspector.page(state, limit=MAX_ROWS, cursor=cursor, preview=WHOLE)
            for message in page.messages:
                checked += 1
                reason = _problem(context, message, problem_of)
                if reason:
                    found[reason].add(message)
            cursor = page.cursor
            if not cursor:
                break
    problems = [HandlerProblem(reason, tally.count, tally.dead, tuple(tally.ids)) for reason, tally in found.items()]
    return HandlerCheck(checked, tuple(sorted(problems, key=lambda problem: (-problem.count, problem.reason))))


def _problem(context: QueueContext, message: MessageInfo, problem_of: Callable[[MessageInfo, Any], str]) -> str:
    try:
        payload = context.decode(message.payload)
    except UndecodableError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - a user's codec may raise anything
        return f"undecodable: {short_repr(error)}"
    return problem_of(message, payload)
