"""What the driver of a write does at the queue: it opens it before data moves, and ends the run behind it."""

from __future__ import annotations

import os
from typing import Any

from delayq.clock import milliseconds, monotonic
from delayq.config import QueueOptions
from delayq.runs import Ledger
from delayq.spark.options import Target

DEDUPE_WINDOW = milliseconds("1d")
"""How long a queue that is fed by Spark remembers settled ids, unless it has a window of its own.

A task that is tried once more after its messages were processed would send them again.
"""

PATIENCE = 2.0
"""Seconds for which Redis is looked for before a job begins; calls under way are tried for longer."""

_LEDGERS: dict[tuple[int, Target, int | None], RunLedger] = {}


class RunLedger(Ledger[bytes]):
    """The run ledger of a queue, and what makes that queue fit to be written to."""

    def __init__(self, target: Target, *, dedupe_window: int | None) -> None:
        """Name the queue; `dedupe_window` in milliseconds, 0 for off, None for a day where there is none."""
        options = QueueOptions(url=target.url, prefix=target.prefix, codec="bytes")
        if dedupe_window is not None:
            options["dedupe_window"] = dedupe_window / 1000
        super().__init__(target.queue, None, options)

    def _opening(self) -> list[Any]:
        requests = super()._opening()
        if self.settings.dedupe_window is None:
            requests.append(self._tools.calls.default_dedupe_window(DEDUPE_WINDOW, self.settings.dedupe_max))
        return requests

    def open(self) -> None:
        """Connect, make the queue known and see to its dedupe window; raises in a few seconds if Redis is not there.

        Done every time, not only the first: it is what a job finds out before its data moves.
        """
        end = monotonic() + PATIENCE
        self._check(self._executor.run(self._opening(), patience=lambda: monotonic() < end))


def ledger_of(target: Target, *, dedupe_window: int | None = None) -> RunLedger:
    """Return the ledger of a target, with a connection that this process keeps."""
    place = (os.getpid(), target, dedupe_window)
    if place not in _LEDGERS:
        _LEDGERS[place] = RunLedger(target, dedupe_window=dedupe_window)
    return _LEDGERS[place]
