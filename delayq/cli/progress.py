"""What is shown while something takes its time: a line on stderr that changes, where stderr is a terminal."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from delayq.cli.output import console
from delayq.cli.text import clean

EVERY = 0.5
"""Seconds between two looks."""


@contextmanager
def progress(text: str, look: Callable[[], str] | None = None) -> Iterator[None]:
    """Show `text` until the end of the block, followed by what `look` returns, asked again and again in a thread.

    What `look` raises ends the asking and nothing else. Without a terminal nothing is shown.
    """
    printer = console(stderr=True)
    if not printer.is_terminal:
        yield
        return
    ended = threading.Event()
    with printer.status(clean(text)) as status:

        def ask() -> None:
            while look is not None and not ended.wait(EVERY):
                try:
                    status.update(clean(f"{text} {look()}"))
                except Exception:  # noqa: BLE001 - the work goes on, and tells of its own troubles
                    return

        asking = threading.Thread(target=ask, name="delayq-progress", daemon=True)
        asking.start()
        try:
            yield
        finally:
            ended.set()
            asking.join()
