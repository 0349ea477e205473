"""`delayq top`: a live view of queues, of who works and what runs longest, with keys to act."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import click

from delayq.broker.engine import Feature
from delayq.cli.queues.top_screen import TopFigures, TopScreen
from delayq.cli.support.exit_codes import Exit
from delayq.cli.support.options import DURATION, PATTERN, QUEUE, engine_option
from delayq.cli.support.output import console
from delayq.cli.support.progress import catch_stop_signals
from delayq.cli.support.session import Session

MAX_COMMANDS = 5.0
"""Commands a second, on average: if there is much to show, it is read less often."""
KEY_WAIT = 0.2
"""Seconds after which a signal or another size of the window is noticed, at the latest."""
_KEYS = {"\x1b[A": "up", "\x1b[B": "down", "\x1bOA": "up", "\x1bOB": "down", "\t": "tab", "\x1b": "escape"}


@click.command()
@click.argument("names", metavar="[QUEUE]...", nargs=-1, type=QUEUE)
@engine_option(Feature.REGISTRY)
@click.option("--queues", "pattern", type=PATTERN, metavar="PATTERN", help="Show the queues with such names: 'mail-*'.")
@click.option("--every", type=DURATION, default="2s", help="Set the interval.")
@click.pass_obj
def top(session: Session, names: tuple[str, ...], *, pattern: str | None, every: timedelta) -> int:
    """Watch each QUEUE, or all: messages, rates, lateness, workers, and what runs longest.

    The arrows, or j and k, select a queue, and after tab a message that runs. p pauses or resumes the queue, r makes
    due now what waits for a retry, d sends the dead letter again, c asks the message to stop. Each asks before it
    acts. q ends.

    It sends at most 5 commands a second: of many queues, those on the screen are read in turn.
    """
    if names and pattern:
        raise click.UsageError("give queues or --queues, not both")
    if not (sys.stdin.isatty() and console().is_terminal):
        raise click.UsageError("top needs a terminal: without one, use delayq stats QUEUE --watch")
    for name in names:
        session.check_queue_exists(name)

    def read_names() -> list[str]:
        return [*names] or session.queue_names(pattern or "*")

    with catch_stop_signals() as stop, _unbuffered_keys():
        screen = TopScreen(TopFigures(session, read_names), session, console().height)
        _show(screen, max(every.total_seconds(), KEY_WAIT), stop.event.is_set)
    return Exit.OK if stop.number in (0, signal.SIGINT) else stop.exit_code(right=True)


def _show(screen: TopScreen, interval: float, is_stopped: Callable[[], bool]) -> None:
    from rich.live import Live

    due = 0.0
    with Live(screen, console=console(), screen=True, auto_refresh=False) as live:
        while not (screen.ended or is_stopped()):
            if time.monotonic() >= due:
                commands = screen.read()
                due = time.monotonic() + max(interval, commands / MAX_COMMANDS)
            live.refresh()
            for key in _keys(min(KEY_WAIT, max(0.0, due - time.monotonic()))):
                if act := screen.press(key):
                    live.refresh()
                    act()
                    due = 0.0


@contextmanager
def _unbuffered_keys() -> Iterator[None]:
    """Get keys as they are pressed, and do not show them."""
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _keys(seconds: float) -> Iterator[str]:
    """Yield the keys that are pressed within so many seconds: characters, `up`, `down`, `tab` and `escape`."""
    if not select.select([sys.stdin], [], [], seconds)[0]:
        return
    text = os.read(sys.stdin.fileno(), 1024).decode(errors="replace")
    while text:
        known = next((code for code in _KEYS if text.startswith(code)), text[0])
        yield _KEYS.get(known, known)
        text = text.removeprefix(known)
