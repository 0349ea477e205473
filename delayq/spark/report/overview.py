"""The account of a log: the few figures and verdicts that page and summary begin with. Plain Python over the tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

Row = dict[str, Any]

FAILURES = ("nacked", "expired", "rejected")
"""How a delivery fails; `rejected` goes to the dead letter at once."""
OUTCOMES = ("acked", "discarded", "released", *FAILURES)
"""How a delivery ends."""

_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))


class Tabled(Protocol):
    """What has its reports as tables: `delayq.spark.reports.Reports`."""

    def tables(self) -> Mapping[str, pa.Table]:
        """Return every report by name."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Something that should hold: whether it does, None where that cannot be told, and a sentence about it."""

    holds: bool | None
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Account:
    """What a log tells at a glance."""

    log: Row
    kinds: dict[str, int]
    """Events of each kind."""
    late: Row | None
    """Percentiles of the lateness of all first attempts; None without any."""
    failures: int
    """Deliveries that failed."""
    redeliveries: dict[str, int]
    """Explained deliveries beyond the first of a life, by what came before."""
    unexplained: int
    """Deliveries that nothing explains."""
    acked_twice: int

    @property
    def is_empty(self) -> bool:
        """Whether nothing happened at all."""
        return not self.log["events"]

    @property
    def sentence(self) -> str:
        """What happened, in a sentence."""
        if self.is_empty:
            return "Nothing happened: the log has no events."
        became = {
            "acked": self.kinds["acked"],
            "discarded": self.kinds["discarded"],
            "cancelled": self.kinds["cancelled"],
            "dead": self.kinds["dead"],
        }
        told = [f"{number:,} {name}" for name, number in became.items() if number]
        lasted = duration((self.log["last"] - self.log["first"]) / timedelta(milliseconds=1))
        return f"{counted(self.log['messages'], 'message')} in {lasted}: {', '.join(told) or 'none has ended'}."

    @property
    def verdicts(self) -> list[Verdict]:
        """What the queue promises, and whether the log bears it out."""
        return [] if self.is_empty else [self._punctual(), *self._single(), self._complete(), *self._perhaps()]

    def _punctual(self) -> Verdict:
        if self.late is None:
            return Verdict(None, "Never early", "Nothing was delivered for the first time.")
        early, attempts = self.late["early"], counted(self.late["deliveries"], "first attempt")
        return Verdict(not early, "Never early", f"Before the due time: {early:,} of {attempts}.")

    def _single(self) -> list[Verdict]:
        again = sum(self.redeliveries.values())
        text = f"Delivered again after a failure or a release: {again:,}; without an explanation: {self.unexplained:,}."
        twice = f"Acks after another one of the same life: {self.acked_twice:,}."
        return [
            Verdict(not self.unexplained, "No duplicates", text),
            Verdict(not self.acked_twice, "Acked once", twice),
        ]

    def _perhaps(self) -> list[Verdict]:
        lost = self.redeliveries.get("expired", 0)
        text = f"Delivered again after a lease had run out: {lost:,}. Their callbacks may have run twice."
        return [Verdict(None, "Perhaps run twice", text)] if lost else []

    def _complete(self) -> Verdict:
        missing, ends = self.log["missing"], f"from offset {self.log['first_offset']:,} to {self.log['last_offset']:,}"
        if missing is None:
            text = "Its entries are numbered by time, as before Redis 7: whether some are missing cannot be told."
            return Verdict(None, "Complete log", text)
        text = f"Entries missing {ends}: {missing:,}."
        if missing > 0:
            text += " What they would tell may be wrong here."
        elif missing < 0:
            text = f"Entries {ends} that are there twice, and counted twice here: {-missing:,}."
        return Verdict(missing == 0, "Complete log", text)


def account(tables: Mapping[str, pa.Table]) -> Account:
    """Return the account that the tables of `reports` give."""
    overall = tables["lateness_overall"].to_pylist()
    again = tables["redeliveries"].to_pylist()
    unexplained = [row for row in again if not row["explained"]]
    return Account(
        log=tables["log"].to_pylist()[0],
        kinds={row["kind"]: row["events"] for row in tables["totals"].to_pylist()},
        late=overall[0] if overall else None,
        failures=sum(row[failure] for row in tables["funnel"].to_pylist() for failure in FAILURES),
        redeliveries={row["after"]: row["events"] for row in again if row["explained"]},
        unexplained=sum(row["events"] for row in unexplained if row["kind"] == "delivered"),
        acked_twice=sum(row["events"] for row in unexplained if row["kind"] != "delivered"),
    )


def period(log: Row) -> str:
    """Return from when to when a log tells, to the second, in UTC."""
    first, last = (_clock(log[end]) for end in ("first", "last"))
    return f"{first} to {last.removeprefix(first[:11]) if first[:10] == last[:10] else last} UTC"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: "1 message", "1,234 messages"."""
    return f"{number:,} {noun if number == 1 else noun + 's'}"


def plain(text: str) -> str:
    """Return a text on one line, without what controls a terminal or turns the reading direction around."""
    return "".join(letter for letter in " ".join(text.split()) if letter.isprintable())


def duration(ms: float | None) -> str:
    """Return milliseconds in the unit they are best read in, '' for None."""
    if ms is None:
        return ""
    size, unit = next(((size, unit) for size, unit in _UNITS if abs(ms) >= size), (1, "ms"))
    number = ms / size
    return f"{number:,.0f} {unit}" if abs(number) >= 100 else f"{number:.3g} {unit}"  # noqa: PLR2004 - three digits


def _clock(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"
