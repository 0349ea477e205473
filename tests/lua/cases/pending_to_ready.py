"""`pending_to_ready`: what is due, in which order, and what the consumer learns besides."""

from __future__ import annotations

from delayq.broker.replies import PromoteReply
from tests.lua.cases.groups import SPECIAL, Group, gathering
from tests.lua.cases.states import CROWD, logged
from tests.support.scripts import NOW, After, Case, World, calls

_DUE = World(
    pending={"a": -1, "b": -3, "c": -2, "d": 9},
    retries=dict.fromkeys("abcd", 3),
    messages=dict.fromkeys("abcd", "m"),
)

_RANKING = World(
    pending={"a": -1, "b": -3, "c": -2, "d": -1, "e": 9},
    attributes={"a": "priority=1", "b": "name=priority=1", "c": "name=n priority=-2 new=1", "e": "priority=5"},
    deliveries={"a": "pending -1 1 T-9 T-8 w !"},
    meta={"priority_step": 60_000},
)
_RANKED = World(ranked={"a": -60_001}, deliveries={"a": "ranked -1 0 0 0 -"}, meta={"priority_step": 60_000})

CASES = [
    Case("nothing there", World(), calls.pending_to_ready(), PromoteReply(0, -1, -1, 0, 0, NOW), World()),
    Case(
        "nothing due, but much to see",
        CROWD,
        calls.pending_to_ready(),
        PromoteReply(0, NOW + 90_000, NOW + 90_000, 2, 1, NOW),
        CROWD,
    ),
    *(
        Case(
            f"paused {how}: due messages become ready, and nothing is to be claimed",
            World(pending={"a": -1}, messages={"a": "m"}, meta={"paused": setting}),
            calls.pending_to_ready(),
            PromoteReply(1, -1, -1, waiting, 0, NOW, -1, ends),
            World(ready=["a"], messages={"a": "m"}, deliveries={"a": "ready -1 0 0 0 -"}, meta={"paused": setting}),
        )
        for how, setting, ends, waiting in [
            ("until later", f"{NOW + 1} x", NOW + 1, 0),
            ("without an end", "0 x y", 0, 0),
            ("until now", f"{NOW} x", -1, 1),
        ]
    ),
    Case(
        "paused, with leased messages only",
        World(unack={"a": 70}, meta={"paused": "0 "}),
        calls.pending_to_ready(),
        PromoteReply(0, -1, NOW + 70, 0, 0, NOW, -1, 0),
        World(unack={"a": 70}, meta={"paused": "0 "}),
    ),
    *(
        Case(
            f"the queue is closed {how}: due messages become ready, and {then}",
            World(
                pending={"a": -1},
                messages={"a": "m"},
                throttled={"t": (1, -5)},
                gates={0: gate, 1: -9},
                limits={"queue": "0 0 1 0 900 - 0 0 0"},
                meta={"limited": "starts"},
            ),
            calls.pending_to_ready(),
            PromoteReply(1, -1, -1, waiting, 0, NOW, ranks=1, next_gate=-1 if gate is None else NOW + gate),
            World(
                ready=["a"],
                messages={"a": "m"},
                deliveries={"a": "ready -1 0 0 0 -"},
                throttled={"t": (1, -5)},
                gates={0: gate, 1: -9},
                limits={"queue": "0 0 1 0 900 - 0 0 0"},
                meta={"limited": "starts"},
            ),
        )
        for how, gate, then, waiting in [
            ("until later", 1, "nothing is to be claimed", 0),
            ("until one ends", None, "nothing is to be claimed", 0),
            ("until now", 0, "may be claimed", 1),
        ]
    ),
    Case(
        "a gate that a limit has left closes nothing",
        World(ready=["a"], deliveries={"a": "ready -1 0 0 0 -"}, gates={0: 9}, meta={"priority_step": 7}),
        calls.pending_to_ready(),
        PromoteReply(0, -1, -1, 1, 0, NOW, ranks=1),
        World(ready=["a"], deliveries={"a": "ready -1 0 0 0 -"}, gates={0: 9}, meta={"priority_step": 7}),
    ),
    Case(
        "what waits in the first of two lines may start next",
        World(throttled={"t": (1, -5), "u": (2, -5)}, gates={1: 9, 2: 7}, meta={"limited": "starts"}),
        calls.pending_to_ready(),
        PromoteReply(0, -1, -1, 0, 0, NOW, ranks=1, next_gate=NOW + 7),
        World(throttled={"t": (1, -5), "u": (2, -5)}, gates={1: 9, 2: 7}, meta={"limited": "starts"}),
    ),
    Case(
        "with a priority, due messages are ranked; all others become ready",
        _RANKING,
        calls.pending_to_ready(),
        PromoteReply(4, NOW + 9, -1, 4, 0, NOW, ranks=1),
        _RANKING.but(
            pending={"e": 9},
            ready=["b", "d"],
            ranked={"a": -60_001, "c": 119_998},
            deliveries={
                "a": "ranked -1 1 T-9 T-8 w !",
                "b": "ready -3 0 0 0 -",
                "c": "ranked -2 0 0 0 -",
                "d": "ready -1 0 0 0 -",
            },
        ),
    ),
    Case(
        "the head start of a priority is that of the queue",
        _RANKING.but(meta={"priority_step": 7}),
        calls.pending_to_ready(3),
        PromoteReply(3, NOW - 1, -1, 3, 0, NOW, ranks=1),
        _RANKING.but(
            pending={"d": -1, "e": 9},
            ready=["b"],
            ranked={"a": -8, "c": 12},
            deliveries={"a": "ranked -1 1 T-9 T-8 w !", "b": "ready -3 0 0 0 -", "c": "ranked -2 0 0 0 -"},
            meta={"priority_step": 7},
        ),
    ),
    Case(
        "one has a priority",
        World(pending={"a": -1}, attributes={"a": "priority=1"}, meta={"priority_step": 60_000}),
        calls.pending_to_ready(),
        PromoteReply(1, -1, -1, 1, 0, NOW, ranks=1),
        _RANKED.but(attributes={"a": "priority=1"}),
    ),
    Case(
        "without a head start in the queue no priority is looked at",
        World(pending={"a": -1}, attributes={"a": "priority=1"}),
        calls.pending_to_ready(),
        PromoteReply(1, -1, -1, 1, 0, NOW),
        World(ready=["a"], attributes={"a": "priority=1"}, deliveries={"a": "ready -1 0 0 0 -"}),
    ),
    *(
        Case(name, world, calls.pending_to_ready(), reply, world)
        for name, world, reply in [
            ("nothing due, and one is ranked", _RANKED, PromoteReply(0, -1, -1, 1, 0, NOW, ranks=1)),
            (
                "nothing due, and one is ranked in a pause",
                _RANKED.but(meta={"priority_step": 60_000, "paused": "0 "}),
                PromoteReply(0, -1, -1, 0, 0, NOW, -1, 0, ranks=1),
            ),
            (
                "nothing due, one is ranked, and there is a stale entry",
                _RANKED.but(ready=["x"], meta={"priority_step": 60_000, "stale_ready": 1}),
                PromoteReply(0, -1, -1, 1, 0, NOW, ranks=1),
            ),
            ("without a step nothing is ranked", _RANKED.but(meta={}), PromoteReply(0, -1, -1, 0, 0, NOW)),
            (
                "nothing due, nothing ranked, and messages have priorities",
                World(pending={"a": 5}, meta={"priority_step": 60_000}),
                PromoteReply(0, NOW + 5, -1, 0, 0, NOW),
            ),
        ]
    ),
    Case(
        "messages have priorities, and some were asked to stop",
        _RANKED.but(unack={"b": 70}, meta={"priority_step": 60_000, "stopping": 3}),
        calls.pending_to_ready(),
        PromoteReply(0, -1, NOW + 70, 1, 0, NOW, ranks=1, stopping=3),
        _RANKED.but(unack={"b": 70}, meta={"priority_step": 60_000, "stopping": 3}),
    ),
    Case(
        "messages were asked to stop",
        World(unack={"a": 70}, meta={"stopping": 3}),
        calls.pending_to_ready(),
        PromoteReply(0, -1, NOW + 70, 0, 0, NOW, stopping=3),
        World(unack={"a": 70}, meta={"stopping": 3}),
    ),
    Case(
        "messages were asked to stop, and none is leased any more",
        World(ready=["a"], meta={"stopping": 3}),
        calls.pending_to_ready(),
        PromoteReply(0, -1, -1, 1, 0, NOW),
        World(ready=["a"], meta={"stopping": 3}),
    ),
    Case(
        "what a message has gathered becomes its payload",
        gathering(Group(2, due=-1)),
        calls.pending_to_ready(),
        PromoteReply(1, -1, -1, 1, 0, NOW, ranks=1),
        World(
            ready=["a"],
            retries={"a": 3},
            messages={"a": "[0,1]"},
            attributes={"a": "collect=3"},
            deliveries={"a": "ready -1 0 0 0 -"},
            meta=SPECIAL,
        ),
    ),
    Case(
        "what is no JSON is framed, and so is all that is with it",
        gathering(Group(2, due=-1)).but(gathered={"a 0": "3:\xff\0,,", "a 1": ",10"}),
        calls.pending_to_ready(),
        PromoteReply(1, -1, -1, 1, 0, NOW, ranks=1),
        World(
            ready=["a"],
            retries={"a": 3},
            messages={"a": "3:\xff\0,,2:10,"},
            attributes={"a": "collect=3"},
            deliveries={"a": "ready -1 0 0 0 -"},
            meta=SPECIAL,
        ),
    ),
    *(
        Case(
            f"of a group with several batches, the first is delivered; the rest follows it {when}",
            gathering(Group(count, due=700, last=last, since=-1, more="priority=1 "), due=-1).but(headers={"a": "h"}),
            calls.pending_to_ready(),
            PromoteReply(1, -1, -1, 1, 0, NOW, ranks=1),
            World(
                ranked={"a": -60_001},
                retries={"a": 3},
                messages={"a": "[0,1,2]"},
                headers={"a": "h"},
                attributes={"a": "priority=1 collect=3"},
                deliveries={"a": "ranked -1 0 0 0 -"},
                successors={
                    "a": After(
                        due, 3, "h", "", Group(count - 3, 700, last, None, -1, first=3, more="priority=1 ").text()
                    )
                },
                gathered=Group(count - 3, first=3).gathered(),
                meta=SPECIAL,
            ),
        )
        for when, count, last, due in [
            ("when it is due", 5, 2, 700),
            ("at once: it is full", 6, 3, 0),
            ("at once", 8, 2, 0),
        ]
    ),
    Case(
        "a batch ends at its bytes",
        gathering(Group(2, due=700, last=1, size=3), due=-1).but(gathered={"a 0": "," + 28 * "9", "a 1": ",1"}),
        calls.pending_to_ready(),
        PromoteReply(1, -1, -1, 1, 0, NOW, ranks=1),
        World(
            ready=["a"],
            retries={"a": 3},
            messages={"a": f"[{28 * '9'}]"},
            attributes={"a": "collect=3"},
            deliveries={"a": "ready -1 0 0 0 -"},
            successors={"a": After(700, 3, "", "", Group(1, 700, first=1).text())},
            gathered={"a 1": ",1"},
            meta=SPECIAL,
        ),
    ),
    Case(
        "when the next schedule occurs",
        World(schedules={"s": 700, "t": 500, "u": 600}),
        calls.pending_to_ready(),
        PromoteReply(0, -1, -1, 0, 0, NOW, NOW + 500),
        World(schedules={"s": 700, "t": 500, "u": 600}),
    ),
    Case(
        "a schedule that is due is left to others",
        _DUE.but(schedules={"s": -500}),
        calls.pending_to_ready(2),
        PromoteReply(2, NOW - 1, -1, 2, 0, NOW, NOW - 500),
        _DUE.but(
            schedules={"s": -500},
            pending={"a": -1, "d": 9},
            ready=["b", "c"],
            deliveries={"b": "ready -3 0 0 0 -", "c": "ready -2 0 0 0 -"},
        ),
    ),
    Case(
        "due this very millisecond, and one millisecond later",
        World(pending={"a": 0, "b": 1}),
        calls.pending_to_ready(),
        PromoteReply(1, NOW + 1, -1, 1, 0, NOW),
        World(pending={"b": 1}, ready=["a"], deliveries={"a": "ready 0 0 0 0 -"}),
    ),
    Case(
        "all that is due, earliest first, behind what is ready",
        _DUE + CROWD,
        calls.pending_to_ready(),
        PromoteReply(3, NOW + 9, NOW + 90_000, 5, 1, NOW),
        (_DUE + CROWD).but(
            pending={"d": 9, "p": 90_000},
            ready=["q", "b", "c", "a"],
            deliveries=CROWD.deliveries | {"a": "ready -1 0 0 0 -", "b": "ready -3 0 0 0 -", "c": "ready -2 0 0 0 -"},
        ),
    ),
    Case(
        "no more than the limit, and when the next one is due",
        _DUE,
        calls.pending_to_ready(2),
        PromoteReply(2, NOW - 1, -1, 2, 0, NOW),
        _DUE.but(
            pending={"a": -1, "d": 9},
            ready=["b", "c"],
            deliveries={"b": "ready -3 0 0 0 -", "c": "ready -2 0 0 0 -"},
        ),
    ),
    Case(
        "a rescheduled message keeps its attempts, tokens and holder",
        World(pending={"a": -5, "b": -4}, deliveries={"a": "pending -5 2 T-9 T-7 w"}),
        calls.pending_to_ready(),
        PromoteReply(2, -1, -1, 2, 0, NOW),
        World(ready=["a", "b"], deliveries={"a": "ready -5 2 T-9 T-7 w", "b": "ready -4 0 0 0 -"}),
    ),
    Case(
        "stale entries are not waiting",
        World(pending={"a": 0}, ready=["x", "b"], retry=["y", "z", "c"], meta={"stale_ready": 1, "stale_retry": 2}),
        calls.pending_to_ready(),
        PromoteReply(1, -1, -1, 3, 0, NOW),
        World(
            ready=["x", "b", "a"],
            retry=["y", "z", "c"],
            deliveries={"a": "ready 0 0 0 0 -"},
            meta={"stale_ready": 1, "stale_retry": 2},
        ),
    ),
    Case(
        "a counter of more stale entries than there are hides none",
        World(ready=["x"], meta={"stale_ready": 2}),
        calls.pending_to_ready(),
        PromoteReply(0, -1, -1, 1, 0, NOW),
        World(ready=["x"], meta={"stale_ready": 2}),
    ),
    Case(
        "the earliest due and the earliest deadline are told",
        World(pending={"a": 7, "b": 5}, unack={"c": -3, "d": 4}, garbage={"e", "f"}),
        calls.pending_to_ready(),
        PromoteReply(0, NOW + 5, NOW - 3, 0, 2, NOW),
        World(pending={"a": 7, "b": 5}, unack={"c": -3, "d": 4}, garbage={"e", "f"}),
    ),
]
CASES += logged(
    CASES,
    {
        "nothing there": [],
        "nothing due, but much to see": [],
        "all that is due, earliest first, behind what is ready": ["promoted 0; ids b c a; dues -3 -2 -1"],
        "no more than the limit, and when the next one is due": ["promoted 0; ids b c; dues -3 -2"],
        "a rescheduled message keeps its attempts, tokens and holder": ["promoted 0; ids a b; dues -5 -4"],
    },
)
