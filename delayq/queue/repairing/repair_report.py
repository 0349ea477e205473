"""The defects that an examination can find in a queue, and the report of what it has found."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

SHOWN = 5
"""Ids that a finding names."""


class FindingKind(StrEnum):
    """What can be wrong with a queue."""

    SERVER = "server"
    """The server could lose messages, refuses writes or is nearly full. Not repaired. Count 0: that is not known."""
    SCHEMA = "schema"
    """A newer delayq has written the queue, so it was not examined. Not repaired."""
    PLACE_WITHOUT_PAYLOAD = "place without payload"
    """Repaired by removing the id from every structure; its message is lost."""
    PAYLOAD_WITHOUT_PLACE = "payload without place"
    """Repaired by adding it to pending: due at once, or at the due time that its record has."""
    SECOND_PLACE = "in a second place"
    """Repaired by removing it from every structure but the one that its record names."""
    REMAINS = "remains of no message"
    """Retries, headers, attributes, an error or a record of an id without a message. Repaired by deleting them."""
    UNREADABLE_RETRIES = "unreadable retries"
    """The retries left are no number. Repaired by setting the queue's default."""
    UNREADABLE_RECORD = "record unreadable"
    """Repaired by deleting it."""
    NEVER = "time that never comes"
    """Due, or leased until, a time that another program has written. Repaired: due at once, or its lease ends."""
    UNREADABLE_HEADERS = "headers unreadable"
    """Not repaired: the message goes to the dead letter when it is delivered. Only a deep examination looks."""
    IDLE_PLACE = "place of none that runs"
    """Takes a place among those that run under a limit. Repaired by giving it back."""
    DEAD_WITHOUT_MESSAGE = "dead without message"
    """Repaired by removing the entry from the dead letter; its message is lost."""
    DEAD_WITHOUT_ENTRY = "dead without entry"
    """Repaired by adding an entry at the time of its death."""
    DEAD_UNTOLD = "dead out of step"
    """The tokens stored with an id are not those of its entries. Repaired by correcting them."""
    RESULT_UNLISTED = "result without entry"
    """Repaired by adding an entry that ends with its retention."""
    COUNTER = "counter off"
    """Repaired by counting again; a list of more than 1,000 ids is not counted, only limited to its length."""
    WAKE = "wake-ups too many"
    """Repaired by leaving one."""
    GATE = "throttled without an end"
    """Held back by a limit that would never let it go. Repaired by asking the limit again."""
    ON_ITS_WAY = "on its way to another partition"
    """Batches that left over a minute ago, so whoever moved them was killed. Not repaired: run `delayq partitions`."""
    READER = "claims of a silent reader"
    """A query of Spark has claimed messages, and was not heard of for longer than its lease, so that they come again.

    Repaired by forgetting the claims: if it starts again, its batch in flight is lost.
    """
    COLD = "cold tier is late"
    """Messages should be back from the files of the cold tier: run `delayq cold`. Not repaired."""
    FIELD = "unknown field"
    """A field of `meta` that delayq does not write. Not repaired."""
    EVENTS = "event log incomplete"
    """Entries could not be written. Repaired by making the log writable again; what is missing stays so."""
    BALANCE = "counts do not add up"
    """The number of messages is not the sum over the states, and a light examination found no reason: use `deep`."""
    SCHEDULE = "schedule without a function"
    """Declared by a function that the program does not have any more. Not repaired: remove it."""
    PAUSED = "paused"
    """The queue is paused, which is no defect: its count is 0."""
    SLO = "lateness objective"
    """How `lateness_slo` was kept over 30 days; its count is 0 unless it was missed. Not repaired."""
    UNCONSUMED = "due, and nobody consumes"
    """Messages have waited for over 10 s, and no consumer is at work: start one. Not repaired."""
    OUTBOX = "outbox behind"
    """Committed rows have waited for over 10 s, or Redis refuses them, see `delayq outbox`. Not repaired."""


MESSAGE_DEFECTS = {
    "1": FindingKind.PLACE_WITHOUT_PAYLOAD,
    "2": FindingKind.PAYLOAD_WITHOUT_PLACE,
    "3": FindingKind.SECOND_PLACE,
    "4": FindingKind.REMAINS,
    "5": FindingKind.UNREADABLE_RETRIES,
    "6": FindingKind.UNREADABLE_RECORD,
    "9": FindingKind.IDLE_PLACE,
    "b": FindingKind.NEVER,
}
DEAD_DEFECTS = {
    "1": FindingKind.DEAD_WITHOUT_MESSAGE,
    "2": FindingKind.DEAD_WITHOUT_ENTRY,
    "3": FindingKind.DEAD_UNTOLD,
}
RESULT_DEFECTS = {"1": FindingKind.RESULT_UNLISTED}
LISTS = {"7": "ready", "8": "retry"}
"""Statuses of messages that have no defect if the list that their record names contains them."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One defect, and how many messages have it."""

    kind: FindingKind
    count: int
    mended: int
    """How many were repaired."""
    text: str
    """Details, where the kind does not say everything."""
    ids: tuple[str, ...]
    """Some of the ids or entries."""


@dataclass(frozen=True, slots=True)
class Checkup:
    """The result of `examine` or `repair`."""

    queue: str
    findings: tuple[Finding, ...]

    @property
    def healthy(self) -> bool:
        """Whether no defects are left."""
        return all(finding.mended == finding.count for finding in self.findings)


class FindingCollector:
    """Collects the defects found so far; counts an id once, even if several structures contain it."""

    def __init__(self, *, fix: bool) -> None:
        """Start empty; with `fix`, the scripts repair the defects that they return."""
        self._fix = fix
        self._ids: dict[FindingKind, list[str]] = {}
        self._counts: dict[FindingKind, int] = {}
        self._findings: list[Finding] = []
        self._seen: set[tuple[FindingKind, bytes]] = set()

    def add_ids(self, kinds: dict[str, FindingKind], ids: list[bytes], statuses: str) -> list[bytes]:
        """Add the ids whose statuses stand for defects; returns those that are new."""
        first = kinds["1"]  # an id may look like an entry of the dead letter
        replied = zip(ids, statuses, strict=True)
        defective = [(id, status) for id, status in replied if status in kinds and (first, id) not in self._seen]
        for id, status in defective:
            self._seen.add((first, id))
            self._counts[kinds[status]] = self._counts.get(kinds[status], 0) + 1
            named = self._ids.setdefault(kinds[status], [])
            if len(named) < SHOWN:
                named.append(id.decode("utf-8", "backslashreplace"))
        return [id for id, _ in defective]

    def add(self, kind: FindingKind, text: str, *, count: int = 1, fixed: bool = False) -> None:
        """Add a defect that belongs to no id."""
        self._findings.append(Finding(kind, count, count if fixed else 0, text, ()))

    @property
    def anything(self) -> bool:
        """Whether the queue itself has a defect."""
        return bool(self._counts) or any(finding.kind is not FindingKind.SERVER for finding in self._findings)

    def findings(self) -> tuple[Finding, ...]:
        """Return the findings in the order of the kinds."""
        found = [
            Finding(kind, count, count if self._fix else 0, "", tuple(self._ids[kind]))
            for kind, count in self._counts.items()
        ]
        order = list(FindingKind)
        return tuple(sorted([*self._findings, *found], key=lambda finding: order.index(finding.kind)))
