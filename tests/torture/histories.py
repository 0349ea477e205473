"""Tells a history by hand: what processes did, a call at a time, on a clock of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from delayq.torture.checker import Verdict, judge
from delayq.torture.history import (
    Answer,
    Calm,
    End,
    Fault,
    Final,
    Invoke,
    Line,
    Opened,
    Rules,
    Start,
    digest,
)

SERVER = 1_700_000_000_000
"""The server's time (ms) at the beginning."""
PAYLOAD = digest(b"payload")
LEASE = 1000


class Tale:
    """Every call takes a millisecond. Times `due` and what the server says are milliseconds from the beginning."""

    def __init__(self, engine: str = "delay") -> None:
        self.lines: list[tuple[str, Line]] = []
        self.time = 0
        self.calls = 0
        self.attempts: dict[str, int] = {}
        for process in ("producer", "worker", "other"):
            self._write(process, Opened(at=0, process=process, pid=1))
        rules = Rules(at=0, queue="q", lease=LEASE, tick=100, longest_delay=50, engine=engine)
        self._write("producer", rules)

    def after(self, ms: int) -> Tale:
        """Let time go by."""
        self.time += ms
        return self

    def send(self, *ids: str, due: int = 0, retries: int = 3, payload: str = PAYLOAD, digits: str = "", **more: Any):
        columns = {"dues": [SERVER + due] * len(ids), "retries": [retries] * len(ids)}
        for id in ids:
            self.attempts.pop(id, None)
        replace = more.pop("replace", False)
        columns |= {"payloads": [payload] * len(ids), "replace": replace}
        return self._call("producer", "send", digits or "1" * len(ids), ids=list(ids), **columns, **more)

    def cancel(self, id: str, digit: str = "1", **more: Any):
        return self._call("producer", "cancel", digit, ids=[id], **more)

    def reschedule(self, id: str, due: int, digit: str = "1", **more: Any):
        return self._call("producer", "reschedule", digit, ids=[id], dues=[SERVER + due], **more)

    def redrive(self, id: str, token: int, digit: str = "1", **more: Any):
        self.attempts.pop(id, None)
        return self._call("producer", "redrive", digit, ids=[id], tokens=[token], **more)

    def claim(self, id: str, token: int, *, by: str = "worker", due: int = 0, attempt: int = 0, **more: Any):
        self.calls += 1
        self._write(by, Invoke(at=self._now, call=self.calls, op="claim", lease=LEASE))
        self.attempts[id] = attempt or self.attempts.get(id, 0) + 1
        now = more.pop("now", self.time)
        answer = Answer(
            at=self._now + 500,
            call=self.calls,
            now=SERVER + now,
            deadline=SERVER + now + LEASE,
            ids=[id],
            tokens=[token],
            dues=[SERVER + due],
            attempts=[self.attempts[id]],
            payloads=[more.pop("payload", PAYLOAD)],
        )
        self._write(by, answer)
        return self.after(1)

    def lost_claim(self, by: str = "worker"):
        """A claim whose answer nobody has heard."""
        self.calls += 1
        self._write(by, Invoke(at=self._now, call=self.calls, op="claim", lease=LEASE))
        return self.after(1)

    def settle(self, op: str, id: str, token: int, digit: str = "1", *, by: str = "worker", **more: Any):
        return self._call(by, op, digit, ids=[id], tokens=[token], **more)

    def start(self, id: str, token: int, *, by: str = "worker", server: int | None = None):
        self._write(
            by, Start(at=self._now, id=id, token=token, server=SERVER + (self.time if server is None else server))
        )
        return self.after(1)

    def end(self, id: str, token: int, outcome: Any = "acked", *, by: str = "worker"):
        self._write(by, End(at=self._now, id=id, token=token, outcome=outcome))
        return self.after(1)

    def fault(self, kind: str, lasting: int = 10, **more: Any):
        lost = more.pop("lost", None)
        if lost is not None:
            more["lost"] = lost * 1000
        self._write("other", Fault(at=self._now, until=self._now + 1000 * lasting, kind=kind, **more))
        return self.after(lasting)

    def finish(self, late: int = 0, **final: Any):
        """End with what Redis holds: nothing, unless told; `late` ms after the last fault."""
        self._write("other", Calm(at=self._now))
        self.after(late)
        self.final = Final(at=self._now, server=SERVER + self.time, **final)
        self._write("other", self.final)
        return self

    def verdict(self) -> Verdict:
        return judge(self.lines)

    def broken(self) -> list[str]:
        return list(self.verdict().broken)

    @property
    def _now(self) -> int:
        return 1000 * self.time

    def _call(self, by: str, op: Any, digits: str, *, outcome: Any = "ok", **columns: Any):
        self.calls += 1
        self._write(by, Invoke(at=self._now, call=self.calls, op=op, **columns))
        if outcome != "unanswered":
            told = digits if outcome == "ok" else ""
            self._write(by, Answer(at=self._now + 500, call=self.calls, outcome=outcome, digits=told))
        return self.after(1)

    def _write(self, process: str, line: Line) -> None:
        self.lines.append((process, line))

    def __iter__(self) -> Iterator[tuple[str, Line]]:
        return iter(self.lines)


class ItemTale(Tale):
    """Of a work queue: without due times, retries or tokens; `number` is that of a delivery, for the history only."""

    def __init__(self) -> None:
        super().__init__("workqueue")

    def add(self, *ids: str, digits: str = "", payload: str = PAYLOAD, **more: Any):
        return self._call(
            "producer", "send", digits or "1" * len(ids), ids=list(ids), payloads=[payload] * len(ids), **more
        )

    def lease(self, id: str, number: int, *, by: str = "worker", lasting: int = 1, payload: str = PAYLOAD):
        """Lease an item; the answer comes after `lasting` ms."""
        self.calls += 1
        self._write(by, Invoke(at=self._now, call=self.calls, op="claim", lease=LEASE))
        answer = Answer(
            at=self._now + 1000 * lasting,
            call=self.calls,
            now=self.time + lasting,
            deadline=self.time + LEASE,
            ids=[id],
            tokens=[number],
            payloads=[payload],
        )
        self._write(by, answer)
        return self.after(1)

    def complete(self, id: str, digit: str = "1", *, by: str = "worker", **more: Any):
        return self._call(by, "ack", digit, ids=[id], **more)


def delivered(id: str = "a", token: int = 1) -> Tale:
    """A message that was sent, delivered and acked, as it should be."""
    counters = {"sent": 1, "acked": 1}
    return (
        Tale()
        .send(id)
        .claim(id, token)
        .start(id, token)
        .end(id, token)
        .settle("ack", id, token)
        .finish(counters=counters)
    )
