"""What the state machine draws from: few values, so that ids collide and times coincide."""

from __future__ import annotations

from collections.abc import Collection

import hypothesis.strategies as st

from delayq.broker.scripts import MAX_IDS
from delayq.values.rates import Pace

# They hold what also stands between the parts of stored texts.
IDS = ("a", "b", "b:1", "c:2:3", "d", "e")
START = 1_700_000_000_000
DAY = 86_400_000
CONSUMERS = ("one", "two")

# An id, or whichever stands in a place, if there is one.
PLACES = (
    "pending",
    "pending again",
    "ready",
    "ready",
    "backoff",
    "backoff",
    "retry",
    "retry",
    "ranked",
    "ranked",
    "throttled",
    "garbage",
    "dead",
    "dead",
)
which = st.sampled_from((*IDS, *PLACES))
several = st.one_of(which.map(lambda one: [one]), st.lists(which, min_size=2, max_size=3))
delays = st.sampled_from((0, 1, 10, 50, 50))
moments = st.sampled_from((0, 0, 1, 10, 50, "@-20", "@0", "@30"))
budgets = st.sampled_from((0, 0, 1, 2, 2, 3, 3))
tops = st.sampled_from((b"", b"", b'{"trace": "\xff\x00"}'))
replaces = st.sampled_from((False, False, True, True, "after", "moved up"))
plain = st.shared(st.sampled_from(("", "", "", "", "", "plain", "plain", "held", "limited")), key="plain")
"""Whether a queue has nothing that turns do not know, at least in the beginning, or only reserved ids or limits."""
logs = plain.flatmap(lambda alone: st.just("off") if alone else st.sampled_from(("on", "on", "off", "lost")))
limited = plain.flatmap(lambda alone: st.just(alone == "limited") if alone else st.booleans())
_HELD = (b"unique_for=40", b"name=n unique_after=30")
_NAMED = (b"name=n", b"name=n expires=+50 timeout=20", b"name=m")
_RANKED = (b"priority=1", b"priority=1", b"name=n priority=-2")
_KINDS = {"": (*_RANKED, *_NAMED, *_HELD), "plain": _NAMED, "limited": _NAMED, "held": _NAMED + _HELD}
names = plain.flatmap(lambda alone: st.sampled_from((b"", b"", b"", *_KINDS[alone])))
retentions = st.sampled_from(("20", "60", "1000"))
outcomes = st.sampled_from(("acked", "acked", "discarded", "missed"))
endings = st.sampled_from((("returned", ""), ("returned", ""), ("discarded", ""), ("discarded", "missed")))
"""How a completed message has ended, and why there is no result."""
reasons = st.sampled_from(("no such user", "no such user", "missed"))
snoozes = st.sampled_from((b"", b"name=n snoozes=1", b"snoozes=2 priority=1", b"name=n unhandled=1"))
quiets = st.sampled_from((1, 10, 30))
"""How long a burst is quiet before its message is due."""
at_mosts = st.sampled_from((None, 30, 40))
steps = plain.flatmap(lambda alone: st.none() if alone else st.sampled_from((None, None, 10, 60_000)))
"""The head start of a priority (ms); None leaves that to the first message with one."""
outgoing = st.tuples(which, moments, budgets, tops, names)
_WINDOWS = (None, None, (30, 100), (200, 4), (10_000, 100))
windows = plain.flatmap(lambda alone: st.none() if alone else st.sampled_from(_WINDOWS))
"""The dedupe window and the ids it may hold; None for off."""
pauses = st.sampled_from(("+1", "+5", "+20", "+20", "+60", "@0", "@-1", "@30", "0"))
"""When a pause ends: at a time, as `moments`, or never."""
paces = st.sampled_from((None, None, Pace(), Pace(10_000, 1), Pace(5_000, 2)))
"""How fast messages may start; None leaves that as it is."""
places = st.sampled_from((None, 0, 1, 1, 2))
"""How many may run at a time."""
scopes = st.sampled_from(("n", "n", "m", None))
"""Names that have limits, None for the queue."""
spreads = st.sampled_from((None, 30, 60))
runs = st.sampled_from(("", "", "nightly", "r:1"))
consumers = st.sampled_from(CONSUMERS)
leases = st.sampled_from((5, 20, 100, 1000))
aheads = st.sampled_from((0, 0, 1, 10, 50))
"""How long before they are due messages may be claimed (ms)."""
limits = st.sampled_from((1, 1, 2, MAX_IDS))
errors = st.sampled_from(("", "boom", "ähem\nbang"))
reruns = st.sampled_from((0, 0, 1, 2))
# Receipts that a consumer holds, that were used or forgotten, whose lease is over, or whose message has died since and
# lives and was delivered again; each counted from the newest.
picks = st.tuples(
    st.sampled_from(("held", "held", "held", "old", "late", "late", "outlived")), st.sampled_from(range(6))
)
several_picks = st.one_of(st.lists(picks, min_size=1, max_size=3, unique=True), picks.map(lambda pick: [pick, pick]))
dead_picks = st.lists(st.sampled_from(range(6)), min_size=1, max_size=3)

OPTIONAL = (
    *("send_one", "send_after", "debounce", "end_followed", "cancel", "kill", "stop", "reschedule", "ack", "nack"),
    *("extend", "release", "reject", "complete", "report", "await_ends"),
    *("limit", "declare", "close", "trip", "pause_name", "resume_name"),
    *("crash", "redrive", "dead_purge", "purge", "pause", "wait"),
)


class AllBut:
    """Which rules an example uses, in the place of Hypothesis's own choice.

    That one often leaves out most rules, and then hardly a message is delivered.
    """

    def __init__(self, left_out: Collection[str]) -> None:
        self.left_out = left_out

    def is_enabled(self, name: str) -> bool:
        return name not in self.left_out


rules_used = st.shared(st.sets(st.sampled_from(OPTIONAL), max_size=5).map(AllBut), key="rules used")
