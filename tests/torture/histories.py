"""Builds a history by hand, one call at a time, with its own clock."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from delayq.testing.torture.disturbing.faults import EVERYTHING
from delayq.testing.torture.history import (
    CallRecord,
    EndRecord,
    FaultRecord,
    HeaderRecord,
    LimitRecord,
    Line,
    ReplyRecord,
    ScanRecord,
    SettingsRecord,
    StartRecord,
    ToldRecord,
    digest,
)
from delayq.testing.torture.rules.checker import CheckResult, check_lines

SERVER = 1_700_000_000_000
"""The server's time (ms) at the start."""
PAYLOAD = digest(b"payload")
LEASE = 1000


class History:
    """Builds a history. Each call takes 1 ms; due times and server times are milliseconds since the start."""

    def __init__(self, **limits: LimitRecord) -> None:
        self.lines: list[tuple[str, Line]] = []
        self.time = 0
        self.calls = 0
        self.attempts: dict[str, int] = {}
        for process in ("producer", "worker", "other"):
            self._write(process, HeaderRecord(at=0, process=process, pid=1))
        facts = {"queue": "q", "lease": LEASE, "tick": 100, "max_nack_delay": 50, "limits": limits}
        self._write("producer", SettingsRecord(at=EVERYTHING, **facts))

    def after(self, ms: int) -> History:
        """Let time pass."""
        self.time += ms
        return self

    def send(self, *ids: str, due: int = 0, retries: int = 3, payload: str = PAYLOAD, statuses: str = "", **more: Any):
        columns = {"dues": [SERVER + due] * len(ids), "retries": [retries] * len(ids)}
        for id in ids:
            self.attempts.pop(id, None)
        replace = more.pop("replace", False)
        columns |= {"payloads": [payload] * len(ids), "replace": replace}
        return self._call("producer", "send", statuses or "1" * len(ids), ids=list(ids), **columns, **more)

    def cancel(self, id: str, status: str = "1", **more: Any):
        return self._call("producer", "cancel", status, ids=[id], **more)

    def reschedule(self, id: str, due: int, status: str = "1", **more: Any):
        return self._call("producer", "reschedule", status, ids=[id], dues=[SERVER + due], **more)

    def redrive(self, id: str, token: int, status: str = "1", **more: Any):
        self.attempts.pop(id, None)
        return self._call("producer", "redrive", status, ids=[id], tokens=[token], **more)

    def claim(self, id: str, token: int, *, by: str = "worker", due: int = 0, attempt: int = 0, **more: Any):
        lasting = more.pop("lasting", 0.5)
        self.calls += 1
        self._write(by, CallRecord(at=self._now, call=self.calls, op="claim", lease=LEASE, ahead=more.pop("ahead", 0)))
        self.attempts[id] = attempt or self.attempts.get(id, 0) + 1
        now = more.pop("now", self.time)
        record = ReplyRecord(
            at=self._now + round(1000 * lasting),
            call=self.calls,
            now=SERVER + now,
            deadline=SERVER + now + LEASE,
            ids=[id],
            tokens=[token],
            dues=[SERVER + due],
            attempts=[self.attempts[id]],
            retries_left=[more.pop("left")] if "left" in more else [],
            payloads=[more.pop("payload", PAYLOAD)],
            names=[more["name"]] if "name" in more else [],
        )
        self._write(by, record)
        return self.after(1)

    def lost_claim(self, by: str = "worker"):
        """A claim without a reply."""
        self.calls += 1
        self._write(by, CallRecord(at=self._now, call=self.calls, op="claim", lease=LEASE))
        return self.after(1)

    def report_start(self, id: str, token: int, status: str = "1", **more: Any):
        """Report that the callback of a message has started."""
        return self.settle("start_report", id, token, status, **more)

    def settle(self, op: str, id: str, token: int, status: str = "1", *, by: str = "worker", **more: Any):
        return self._call(by, op, status, ids=[id], tokens=[token], **more)

    def close(self, name: str, lasts: int, status: str = "1", *, by: str = "worker", **more: Any):
        return self._call(by, "close", status, name=name, lasts=lasts, **more)

    def breaks(self, name: str, pause: int, status: str = "1", *, by: str = "worker", **more: Any):
        """The breaker of a name, or of the queue (''), trips for a pause; with 0 it lets all start again."""
        return self._call(by, "break", status, name=name, lasts=pause, **more)

    def start(self, id: str, token: int, *, by: str = "worker", server: int | None = None, lost: bool = False):
        read = SERVER + (self.time if server is None else server)
        self._write(by, StartRecord(at=self._now, id=id, token=token, server=read, lost=lost))
        return self.after(1)

    def told(self, id: str, told: str, status: str):
        """Tell a sender what became of a message."""
        self._write("producer", ToldRecord(at=self._now, id=id, told=told, status=status))
        return self.after(1)

    def end(self, id: str, token: int, outcome: Any = "acked", *, by: str = "worker"):
        self._write(by, EndRecord(at=self._now, id=id, token=token, outcome=outcome))
        return self.after(1)

    def fault(self, kind: str, lasting: int = 10, **more: Any):
        lost = more.pop("lost", None)
        if lost is not None:
            more["lost"] = max(lost * 1000, EVERYTHING)
        self._write("other", FaultRecord(at=self._now, until=self._now + 1000 * lasting, kind=kind, **more))
        return self.after(lasting)

    def finish(self, late: int = 0, **final: Any):
        """End with the contents of Redis, empty by default, `late` ms after the last fault."""
        self.after(late)
        self.final = ScanRecord(at=self._now, server=SERVER + self.time, **final)
        self._write("other", self.final)
        return self

    def result(self) -> CheckResult:
        return check_lines(self.lines)

    def broken(self) -> list[str]:
        return list(self.result().broken)

    @property
    def _now(self) -> int:
        return 1000 * self.time

    def _call(self, by: str, op: Any, statuses: str, *, outcome: Any = "ok", **columns: Any):
        self.calls += 1
        self._write(by, CallRecord(at=self._now, call=self.calls, op=op, **columns))
        if outcome != "unanswered":
            replied = statuses if outcome == "ok" else ""
            self._write(by, ReplyRecord(at=self._now + 500, call=self.calls, outcome=outcome, statuses=replied))
        return self.after(1)

    def _write(self, process: str, line: Line) -> None:
        self.lines.append((process, line))

    def __iter__(self) -> Iterator[tuple[str, Line]]:
        return iter(self.lines)


def delivered(id: str = "a", token: int = 1) -> History:
    """Return the history of a message that was sent, delivered and acked."""
    counters = {"sent": 1, "acked": 1}
    return (
        History()
        .send(id)
        .claim(id, token)
        .start(id, token)
        .end(id, token)
        .settle("ack", id, token)
        .finish(counters=counters)
    )
