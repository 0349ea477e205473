"""What looking over a queue can find, and what has been found."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

SHOWN = 5
"""Ids named by a finding."""


class FindingKind(StrEnum):
    """What can be wrong with a queue."""

    SERVER = "server"
    """The server could lose messages; see the start-up check. Not mended."""
    SCHEMA = "schema"
    """The queue is of a newer delayq, and was not looked at. Not mended."""
    PLACE_WITHOUT_PAYLOAD = "place without payload"
    """Mended by taking the id out of every place: what it stood for is lost."""
    PAYLOAD_WITHOUT_PLACE = "payload without place"
    """Mended by a place in pending: at once, or at the due time if the record knows it."""
    SECOND_PLACE = "in a second place"
    """Mended by taking it out of all places but the one that its record names."""
    REMAINS = "remains of no message"
    """Retries, headers, an error or a record of an id that is no message. Mended by deleting them."""
    NO_RETRIES = "without retries"
    """Mended by the queue's default."""
    UNREADABLE_RECORD = "record unreadable"
    """Mended by deleting it."""
    DEAD_WITHOUT_MESSAGE = "dead without message"
    """Mended by taking the entry out of the dead letter: what it stood for is lost."""
    DEAD_WITHOUT_ENTRY = "dead without entry"
    """Mended by an entry at the time of its death."""
    DEAD_UNTOLD = "dead out of step"
    """The tokens kept with an id are not those of its entries. Mended by putting them right."""
    COUNTER = "counter off"
    """Mended by counting anew; what holds more than 1,000 ids is not counted, and only kept within bounds."""
    WAKE = "wake-ups too many"
    """Mended by leaving one."""
    FIELD = "unknown field"
    """A field of `meta` that no delayq writes. Not mended."""
    BALANCE = "counts do not add up"
    """A light look found nothing that explains why there are more or fewer messages than places. Look deeply."""


ILL = dict(
    zip(
        "123456",
        (
            FindingKind.PLACE_WITHOUT_PAYLOAD,
            FindingKind.PAYLOAD_WITHOUT_PLACE,
            FindingKind.SECOND_PLACE,
            FindingKind.REMAINS,
            FindingKind.NO_RETRIES,
            FindingKind.UNREADABLE_RECORD,
        ),
        strict=True,
    )
)
DEAD_ILL = dict(
    zip(
        "123",
        (FindingKind.DEAD_WITHOUT_MESSAGE, FindingKind.DEAD_WITHOUT_ENTRY, FindingKind.DEAD_UNTOLD),
        strict=True,
    )
)
LISTS = {"7": "ready", "8": "retry"}
"""Answered for what is well if the list that its record names holds it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, and with how many messages."""

    kind: FindingKind
    count: int
    mended: int
    text: str
    """What was found, in words, where the kind does not say it all."""
    ids: tuple[str, ...]
    """Some of the ids or entries."""


@dataclass(frozen=True, slots=True)
class Checkup:
    """What looking at a queue has found."""

    queue: str
    findings: tuple[Finding, ...]

    @property
    def healthy(self) -> bool:
        """Whether nothing is wrong, or nothing is any more."""
        return all(finding.mended == finding.count for finding in self.findings)


class Notes:
    """What has been found so far. An id is counted once, in however many structures it is met."""

    def __init__(self, *, mend: bool) -> None:
        """Note nothing yet; with `mend`, what scripts answer is mended."""
        self.mend = mend
        self._ids: dict[FindingKind, list[str]] = {}
        self._counts: dict[FindingKind, int] = {}
        self._told: list[Finding] = []
        self._seen: set[tuple[FindingKind, bytes]] = set()

    def take(self, kinds: dict[str, FindingKind], ids: list[bytes], digits: str) -> list[bytes]:
        """Take in what a script answered; returns the ids that are to be mended still."""
        of = kinds["1"]  # an id may look like an entry of the dead letter
        answered = zip(ids, digits, strict=True)
        ill = [(id, digit) for id, digit in answered if digit in kinds and (of, id) not in self._seen]
        for id, digit in ill:
            self._seen.add((of, id))
            self._counts[kinds[digit]] = self._counts.get(kinds[digit], 0) + 1
            named = self._ids.setdefault(kinds[digit], [])
            if len(named) < SHOWN:
                named.append(id.decode("utf-8", "backslashreplace"))
        return [id for id, _ in ill]

    def tell(self, kind: FindingKind, text: str, *, count: int = 1, mended: bool = False) -> None:
        """Note what no id tells."""
        self._told.append(Finding(kind, count, count if mended else 0, text, ()))

    @property
    def anything(self) -> bool:
        """Whether anything is wrong with the queue itself."""
        return bool(self._counts) or any(finding.kind is not FindingKind.SERVER for finding in self._told)

    def findings(self) -> tuple[Finding, ...]:
        """Return what has been found, in the order of the kinds."""
        found = [
            Finding(kind, count, count if self.mend else 0, "", tuple(self._ids[kind]))
            for kind, count in self._counts.items()
        ]
        order = list(FindingKind)
        return tuple(sorted([*self._told, *found], key=lambda finding: order.index(finding.kind)))
