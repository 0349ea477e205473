"""What a command that takes a whole queue says of the messages that it does not see: those in the cold tier."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq.cli.support.output import print_note
from delayq.queue.inspecting.cold_tier import count_cold
from delayq.values.text import pluralize

if TYPE_CHECKING:
    from delayq.broker.calls import Calls
    from delayq.broker.transport.executor import Executor


def note_cold(executor: Executor, calls: Calls, left: str) -> None:
    """Say that cold messages are `left` out, such as "not exported", if a queue has some."""
    tell_cold(executor.call(count_cold(calls)), left)


def tell_cold(cold: int, left: str) -> None:
    """Say that so many cold messages are `left` out."""
    if cold:
        are = "is" if cold == 1 else "are"
        print_note(f"{pluralize(cold, 'message')} {are} cold, and {left}: see `delayq docs cold`")
