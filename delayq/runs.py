"""The run ledger: what became of the messages of a bulk send, added up in Redis by the calls that stored them.

So a run is counted right whatever happens to those who send: a call whose answer was lost is counted once, and a
message that was there already is counted as such.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

import msgspec

from delayq.answers import Run
from delayq.clock import moment
from delayq.config import whole
from delayq.face import AsyncFace, BlockingFace
from delayq.keys import check_id
from delayq.message import Tools
from delayq.operation import Operation
from delayq.twins import twin

T = TypeVar("T")

MOST_REFUSALS = 1000
"""Refused messages that a run lists; all are counted."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[tuple[str, str]]).decode


@dataclass(frozen=True, slots=True)
class RunInfo:
    """What became of the messages of one run. Each call of a send counts once, however often it was tried."""

    run: str
    state: str
    """writing, committed or aborted."""
    started: datetime
    ended: datetime | None
    new: int
    exists: int
    replaced: int
    running: int
    settled: int
    refused: int
    """Messages that were not sent, because something was wrong with them."""

    @property
    def sent(self) -> int:
        """Messages that reached the queue, whatever it did with them."""
        return self.new + self.exists + self.replaced + self.running + self.settled


def check_run(run: str) -> str:
    """Return a valid name of a run; raise `ConfigurationError` for any other."""
    return check_id(run, "run")


def read(run: str, record: Run) -> RunInfo:
    """Return a record of the ledger as it is shown."""
    ended = moment(record.ended) if record.ended else None
    return RunInfo(run, record.state, moment(record.started), ended, *record[4:])


def all_runs(tools: Tools) -> Operation[list[RunInfo]]:
    """Read the ledger, the run that began last first."""
    (runs,) = yield [tools.calls.runs()]
    return sorted((read(run, record) for run, record in runs.items()), key=lambda info: info.started, reverse=True)


def end(
    tools: Tools, run: str, *, aborted: bool, refusals: Iterable[tuple[str, str]], refused: int | None, epoch: int
) -> Operation[RunInfo]:
    """End a run, or an epoch of it."""
    check_run(run)
    whole(epoch, "epoch", -1, 1 << 53)
    listed = [(str(id), str(reason)) for id, reason in refusals]
    counted = len(listed) if refused is None else whole(refused, "refused", 0, 1 << 53)
    (record,) = yield [
        tools.calls.end_run(
            run,
            state="aborted" if aborted else "committed",
            epoch=epoch,
            refused=counted,
            refusals=_encode(listed[:MOST_REFUSALS]) if listed else b"",
        )
    ]
    return read(run, record)


def refusals_of(tools: Tools, run: str) -> Operation[list[tuple[str, str]]]:
    """Read what was refused in a run."""
    (stored,) = yield [tools.calls.refusals(check_run(run))]
    return _decode(stored) if stored else []


class Ledger(BlockingFace[T]):
    """A face that reads and writes the run ledger."""

    def runs(self) -> list[RunInfo]:
        """Return the runs of bulk sends, the latest first; a queue remembers a thousand."""
        return self._perform(all_runs(self._tools))

    def end_run(
        self,
        run: str,
        *,
        aborted: bool = False,
        refusals: Iterable[tuple[str, str]] = (),
        refused: int | None = None,
        epoch: int = -1,
    ) -> RunInfo:
        """Mark a run committed or aborted, and note what was `refused` before it could be sent, as (id, reason).

        Changes nothing in the queue: what an aborted run has sent stays sent. `refused` is the number, if more were
        refused than are listed. A run of several epochs counts each of them, a number that rises, once.
        """
        return self._perform(end(self._tools, run, aborted=aborted, refusals=refusals, refused=refused, epoch=epoch))

    def refusals(self, run: str) -> list[tuple[str, str]]:
        """Return what was refused in a run, as (id, reason); the first thousand."""
        return self._perform(refusals_of(self._tools, run))


class AsyncLedger(AsyncFace[T]):
    """A face that reads and writes the run ledger."""

    @twin(Ledger.runs)
    async def runs(self) -> list[RunInfo]:
        return await self._perform(all_runs(self._tools))

    @twin(Ledger.end_run)
    async def end_run(
        self,
        run: str,
        *,
        aborted: bool = False,
        refusals: Iterable[tuple[str, str]] = (),
        refused: int | None = None,
        epoch: int = -1,
    ) -> RunInfo:
        return await self._perform(
            end(self._tools, run, aborted=aborted, refusals=refusals, refused=refused, epoch=epoch)
        )

    @twin(Ledger.refusals)
    async def refusals(self, run: str) -> list[tuple[str, str]]:
        return await self._perform(refusals_of(self._tools, run))
