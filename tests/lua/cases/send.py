"""`send`: fresh, existing, replaced, running and spent ids; due times, headers, wake-ups and the limit."""

from __future__ import annotations

from delayq.broker.requests import NewTable, Outgoing, OutgoingTable, Replace, ScriptCall
from delayq.errors import QueueFullError
from tests.lua.cases.states import (
    CROWD,
    GARBAGE,
    LEASED,
    LEFTOVERS,
    LIMITED,
    STATES,
    in_new_queues,
    logged,
    remembering,
    reserved,
    with_meta,
)
from tests.support.scripts import NOW, After, Case, World, calls


def send(
    *messages: Outgoing, replace: Replace = False, max_length: int | None = None, run: str = ""
) -> ScriptCall[str]:
    table = OutgoingTable(*map(list, zip(*messages, strict=True)))  # as a table: `send_one` has its own cases
    return calls.send(table, replace=replace, max_length=max_length, run=run)


def send_new(*messages: Outgoing) -> ScriptCall[str]:
    """Send messages whose ids were made for it."""
    return calls.send(NewTable(*map(list, zip(*messages, strict=True))), max_length=None)


def out(  # noqa: PLR0917 - the fields of a message
    id: str,
    due: int | str = 5000,
    retries: int = 3,
    payload: bytes = b"new",
    headers: bytes = b"",
    attributes: bytes = b"",
) -> Outgoing:
    return Outgoing(id, due, retries, payload, headers, attributes)


def stored(**pending: int) -> World:
    """Return what messages sent by `out` leave in the queue."""
    return World(pending=pending, retries=dict.fromkeys(pending, 3), messages=dict.fromkeys(pending, "new"))


def _into_the_empty_queue() -> list[Case]:
    after = stored(a=5000).but(meta={"sent": 1}, wake=1)
    return [
        Case("one message", World(), send(out("a")), "1", after),
        Case("due at once", World(), send(out("a", 0)), "1", after.but(pending={"a": 0})),
        Case("due at an absolute time", World(), send(out("a", f"@{NOW + 7}")), "1", after.but(pending={"a": 7})),
        Case("due in the past", World(), send(out("a", f"@{NOW - 7}")), "1", after.but(pending={"a": -7})),
        Case(
            "due in a hundred years, to the millisecond",
            World(),
            send(out("a", 3_162_240_000_001)),
            "1",
            after.but(pending={"a": 3_162_240_000_001}),
        ),
        Case("no retries", World(), send(out("a", retries=0)), "1", after.but(retries={"a": 0})),
        Case("empty payload", World(), send(out("a", payload=b"")), "1", after.but(messages={"a": ""})),
        Case(
            "any bytes as payload and headers",
            World(),
            send(out("a", payload=b"\x00\r\n\xff", headers=b"\xfe\x00 ")),
            "1",
            after.but(messages={"a": "\x00\r\n\xff"}, headers={"a": "\xfe\x00 "}),
        ),
        Case(
            "some with attributes: the schema of the queue is 2",
            World(),
            send(out("a"), out("b", 6000, 4, b"B", b"", b"name=b"), out("c", 7000, 5, b"C", b"hc", b"name=c")),
            "111",
            World(
                pending={"a": 5000, "b": 6000, "c": 7000},
                retries={"a": 3, "b": 4, "c": 5},
                messages={"a": "new", "b": "B", "c": "C"},
                headers={"c": "hc"},
                attributes={"b": "name=b", "c": "name=c"},
                meta={"sent": 3, "schema": 2},
                wake=1,
            ),
        ),
        Case(
            "new ids",
            World(),
            send_new(out("a"), out("b", 6000)),
            "11",
            stored(a=5000, b=6000).but(meta={"sent": 2}, wake=1),
        ),
        Case(
            "a new id beside others",
            stored(o=9000),
            send_new(out("a")),
            "1",
            stored(o=9000, a=5000).but(meta={"sent": 1}, wake=1),
        ),
        *(
            Case(
                f"{what} with a priority: what is due is ranked from now on{but}",
                World(meta=meta),
                send(out("a"), out("b", 6000, attributes=text.encode())),
                "11",
                stored(a=5000, b=6000).but(
                    attributes={"b": text}, meta={"priority_step": 60_000, **meta, "sent": 2, "schema": 2}, wake=1
                ),
            )
            for what, text, meta, but in [
                ("one", "priority=1", {}, ""),
                ("one that has a name", "name=b priority=-1", {}, ""),
                ("one", "priority=9", {"priority_step": 5}, ", as it was before"),
            ]
        ),
        Case(
            "a priority alone",
            World(),
            send(out("a", attributes=b"name=a priority=-7")),
            "1",
            after.but(attributes={"a": "name=a priority=-7"}, meta={"sent": 1, "schema": 2, "priority_step": 60_000}),
        ),
        Case(
            "a priority alone, and the step was set before",
            World(meta={"priority_step": 5}),
            send(out("a", attributes=b"priority=7")),
            "1",
            after.but(attributes={"a": "priority=7"}, meta={"sent": 1, "schema": 2, "priority_step": 5}),
        ),
        Case(
            "attributes alone",
            World(),
            send(out("a", attributes=b"name=a")),
            "1",
            after.but(attributes={"a": "name=a"}, meta={"sent": 1, "schema": 2}),
        ),
        Case(
            "some with headers",
            World(),
            send(out("a"), out("b", 6000, 4, b"B", b"hb"), out("c", 7000, 5, b"C")),
            "111",
            World(
                pending={"a": 5000, "b": 6000, "c": 7000},
                retries={"a": 3, "b": 4, "c": 5},
                messages={"a": "new", "b": "B", "c": "C"},
                headers={"b": "hb"},
                meta={"sent": 3},
                wake=1,
            ),
        ),
        Case(
            "an id twice in a batch is sent once, as it came first",
            World(),
            send(out("a"), out("b"), out("a", 1, 9, b"other", b"h")),
            "110",
            stored(a=5000, b=5000).but(meta={"sent": 2}, wake=1),
        ),
    ]


def _beside_others() -> list[Case]:
    there = stored(z=5000)
    return [
        Case(
            "one that is due later wakes nobody",
            there,
            send(out("a", 5001)),
            "1",
            stored(z=5000, a=5001).but(meta={"sent": 1}),
        ),
        Case(
            "one that is due at the same time wakes nobody",
            there,
            send(out("a", 5000)),
            "1",
            stored(z=5000, a=5000).but(meta={"sent": 1}),
        ),
        Case(
            "one that is due earlier wakes a consumer",
            there,
            send(out("b", 5001), out("a", 4999)),
            "11",
            stored(z=5000, a=4999, b=5001).but(meta={"sent": 2}, wake=1),
        ),
        Case(
            "one that is due earlier wakes a consumer, also as the first of two",
            there,
            send(out("a", 4999), out("b", 5001)),
            "11",
            stored(z=5000, a=4999, b=5001).but(meta={"sent": 2}, wake=1),
        ),
        Case(
            "a wake-up that is not taken yet is enough",
            there.but(wake=1),
            send(out("a", 4999)),
            "1",
            stored(z=5000, a=4999).but(meta={"sent": 1}, wake=1),
        ),
        Case(
            "counts add up",
            there.but(meta={"sent": 7, "token": "T-9"}),
            send(out("a", 6000), out("z")),
            "10",
            stored(z=5000, a=6000).but(meta={"sent": 8, "token": "T-9"}),
        ),
    ]


def _onto_every_state() -> list[Case]:
    """Send `a` where it is already, without replacing."""
    replies = {"garbage": "4", "dead": "1", "gone": "1"}
    cases = []
    for name, world in STATES.items():
        reply, after = replies.get(name, "0"), world + CROWD
        if reply == "1":
            after += stored(a=5000) + World(meta={"sent": 1}, wake=1)
        cases.append(Case(f"{name} before", world + CROWD, send(out("a")), reply, after))
    return cases


def _replacing_every_state() -> list[Case]:
    sent, new = stored(a=5000), World(wake=1)
    expected = {
        "pending": ("2", sent + new),
        "rescheduled": ("2", sent + new + World(meta={"token": "T-3"})),
        "ready": ("2", sent + new + World(ready=["a"], meta={"stale_ready": 1})),
        "released": ("2", sent + new + World(ready=["a"], meta={"token": "T-3", "stale_ready": 1})),
        "leased": ("3", STATES["leased"]),
        "backoff": ("2", sent + new + World(meta={"token": "T-3"})),
        "retry": ("2", sent + new + World(retry=["a"], meta={"token": "T-3", "stale_retry": 1})),
        "ranked": ("2", sent + new + World(meta={"token": "T-3", "priority_step": 60_000})),
        "throttled": ("2", with_meta(sent + new, World(meta={"token": "T-3"}), LIMITED)),
        "garbage": ("4", STATES["garbage"]),
        "dead": ("1", STATES["dead"] + sent + new + World(meta={"token": "T-3", "sent": 1})),
        "gone": ("1", sent + new + World(meta={"token": "T-3", "sent": 1})),
    }
    return [
        Case(f"replacing, {name} before", world + CROWD, send(out("a"), replace=True), reply, after + CROWD)
        for name, world in STATES.items()
        for reply, after in [expected[name]]
    ]


def _replacing() -> list[Case]:
    there = stored(a=5000, z=8000).but(headers={"a": "old"}, attributes={"a": "name=old"})
    return [
        Case(
            "replacing brings new headers",
            there,
            send(out("a", 5000, headers=b"new"), replace=True),
            "2",
            there.but(headers={"a": "new"}, attributes={}),
        ),
        Case(
            "replacing brings new attributes",
            there,
            send(out("a", 5000, attributes=b"name=new"), replace=True),
            "2",
            there.but(headers={}, attributes={"a": "name=new"}, meta=there.meta | {"schema": 2}),
        ),
        Case(
            "replacing by one due later wakes nobody",
            there,
            send(out("a", 5001), replace=True),
            "2",
            stored(a=5001, z=8000),
        ),
        Case(
            "replacing by one due earlier wakes a consumer",
            there,
            send(out("a", 4999), replace=True),
            "2",
            stored(a=4999, z=8000).but(wake=1),
        ),
        Case(
            "replacing changes everything that was sent",
            there,
            send(out("a", 9000, 0, b"other", b"h"), replace=True),
            "2",
            World(
                pending={"a": 9000, "z": 8000},
                retries={"a": 0, "z": 3},
                messages={"a": "other", "z": "new"},
                headers={"a": "h"},
            ),
        ),
        *(
            Case(
                f"keeping {what}",
                there.but(retries={"a": 2, "z": 3}, headers={"a": "ha"}, attributes={"a": before}),
                send(out("a", 9000, 5, b"other", b"", given.encode()), replace=True),
                "2",
                World(
                    pending={"a": 9000, "z": 8000},
                    retries={"a": retries, "z": 3},
                    messages={"a": "other", "z": "new"},
                    headers={"a": headers} if headers else {},
                    attributes={"a": after} if after else {},
                    meta=meta,
                ),
            )
            for what, before, given, retries, headers, after, meta in [
                ("retries", "name=a", "keep=retries", 2, "", "", {}),
                ("headers", "name=a", "keep=headers", 5, "ha", "", {}),
                ("a name", "name=a snoozes=3", "keep=name", 5, "", "name=a", {"schema": 2}),
                ("one of two", "name=a timeout=5", "timeout=6 keep=name", 5, "", "timeout=6 name=a", {"schema": 2}),
                (
                    "one, not the default",
                    "retention=1",
                    "retention=2 keep=retention",
                    5,
                    "",
                    "retention=1",
                    {"schema": 2},
                ),
                ("what it has not", "name=a", "keep=timeout,priority", 5, "", "", {}),
            ]
        ),
        Case(
            "an id twice in a batch is replaced once, as it came first",
            there,
            send(out("a", 6000), out("a", 7000), replace=True),
            "20",
            stored(a=6000, z=8000),
        ),
        Case(
            "replacing the only message there is, and it is running",
            STATES["leased"],
            send(out("a"), replace=True),
            "3",
            STATES["leased"],
        ),
        Case(
            "new, replaced, running and spent in one batch",
            World(
                unack={"r": 500},
                garbage={"g"},
                ready=["b"],
                retries={"r": 1, "g": 0, "b": 1},
                messages={"r": "R", "g": "G", "b": "B"},
                deliveries={"r": "leased -5 1 T-9 T-9 w", "g": "garbage -5 1 T-8 T-8 w", "b": "ready -5 0 0 0 -"},
            ),
            send(out("a"), out("r"), out("g"), out("b", 6000), replace=True),
            "1342",
            World(
                pending={"a": 5000, "b": 6000},
                unack={"r": 500},
                garbage={"g"},
                ready=["b"],
                retries={"r": 1, "g": 0, "a": 3, "b": 3},
                messages={"r": "R", "g": "G", "a": "new", "b": "new"},
                deliveries={"r": "leased -5 1 T-9 T-9 w", "g": "garbage -5 1 T-8 T-8 w"},
                meta={"sent": 1, "stale_ready": 1},
                wake=1,
            ),
        ),
    ]


def _limited() -> list[Case]:
    two = stored(y=1000, z=2000)
    return [
        Case(
            "up to the limit",
            two,
            send(out("a"), max_length=3),
            "1",
            two + stored(a=5000) + World(meta={"sent": 1}),
        ),
        Case("past the limit", two, send(out("a"), max_length=2), QueueFullError, two),
        Case("a batch past the limit, all of it", two, send(out("a"), out("b"), max_length=3), QueueFullError, two),
        Case("an existing id needs no room", two, send(out("z"), max_length=1), "0", two),
        Case(
            "a replaced one needs no room",
            two,
            send(out("z", 3000), replace=True, max_length=1),
            "2",
            stored(y=1000, z=3000),
        ),
        Case(
            "remains of messages take no room",
            two + LEFTOVERS,
            send(out("b"), max_length=3),
            "1",
            two + LEFTOVERS + stored(b=5000) + World(meta={"token": "T-3", "sent": 1}),
        ),
        Case(
            "remains of a message are no message",
            World(retries={"a": 9}, errors={"z": "e"}) + stored(y=1000),
            send(out("a", 500)),
            "1",
            stored(y=1000, a=500).but(errors={"z": "e"}, meta={"sent": 1}, wake=1),
        ),
        Case("a limit of one", World(), send(out("a"), out("b"), max_length=1), QueueFullError, World()),
        Case(
            "an id twice in a batch needs room once",
            two,
            send(out("a"), out("a"), max_length=3),
            "10",
            two + stored(a=5000) + World(meta={"sent": 1}),
        ),
    ]


_MIXED = World(
    unack={"r": 500},
    garbage={"g"},
    retries={"r": 1, "g": 0},
    messages={"r": "R", "g": "G"},
    deliveries={"r": "leased -5 1 T-9 T-9 w", "g": "garbage -5 1 T-8 T-8 w"},
)
"""One that is running and one that is spent; what is sent beside them is stored as `stored` says."""


def _remembered() -> list[Case]:
    """Send ids that were settled within the dedupe window."""
    settled = remembering(1000, a=-999)
    new = stored(a=5000).but(meta={"sent": 1}, wake=1)
    return [
        Case("settled", settled, send(out("a")), "5", settled),
        Case("settled; replacing does not help", settled, send(out("a"), replace=True), "5", settled),
        Case("settled, twice in a batch", settled, send(out("a"), out("a")), "55", settled),
        Case(
            "settled just before the window",
            remembering(1000, a=-1000),
            send(out("a")),
            "1",
            remembering(1000, a=-1000) + new,
        ),
        Case("settled, and no window any more", World(done={"a": -1}), send(out("a")), "1", new.but(done={"a": -1})),
        Case(
            "settled, but alive again",
            settled + stored(a=5000, z=1000),
            send(out("a", 6000), replace=True),
            "2",
            settled + stored(a=6000, z=1000),
        ),
        Case("settled, but running again", settled + LEASED, send(out("a")), "0", settled + LEASED),
        Case(
            "the settled need no room",
            settled + stored(z=1000),
            send(out("a"), out("b"), max_length=2),
            "51",
            settled + stored(z=1000, b=5000) + World(meta={"sent": 1}),
        ),
        Case(
            "everything that can become of a message",
            _MIXED + stored(e=100) + remembering(1000, s=-1),
            send(out("n"), out("e"), out("r"), out("g"), out("s"), out("n")),
            "100450",
            _MIXED + stored(e=100, n=5000) + remembering(1000, s=-1) + World(meta={"sent": 1}),
        ),
        Case(
            "everything that can become of a message, replacing",
            _MIXED + stored(e=100, f=200) + remembering(1000, s=-1),
            send(out("n"), out("e"), out("r"), out("g"), out("s"), out("f", 7000), out("m", 6000), replace=True),
            "1234521",
            _MIXED + stored(e=5000, f=7000, n=5000, m=6000) + remembering(1000, s=-1) + World(meta={"sent": 2}),
        ),
    ]


def _in_a_run() -> list[Case]:
    """Send under the name of a run, whose counts stand in the ledger."""
    mixed = _MIXED + stored(e=100) + remembering(1000, s=-1)
    everything = out("n"), out("e"), out("r"), out("g"), out("s"), out("n")
    return [
        Case(
            "the first call of a run begins its record",
            World(),
            send(out("a"), out("b"), run="r"),
            "11",
            stored(a=5000, b=5000).but(meta={"sent": 2}, wake=1, runs={"r": "writing 0 - -1 2 0 0 0 0 0"}),
        ),
        Case(
            "each answer is counted, but for those to be collected: they come again",
            mixed.but(runs={"r": "writing -50 - -1 7 6 5 4 3 2", "other": "aborted -90 -80 3 1 1 1 1 1 1"}),
            send(*everything, run="r"),
            "100450",
            mixed
            + stored(n=5000)
            + World(
                meta={"sent": 1},
                runs={"r": "writing -50 - -1 8 9 5 4 4 2", "other": "aborted -90 -80 3 1 1 1 1 1 1"},
            ),
        ),
        Case(
            "each answer is counted, replacing",
            mixed.but(runs={"r": "writing -50 - -1 7 6 5 4 3 2"}),
            send(*everything, replace=True, run="r"),
            "123450",
            mixed
            + stored(e=5000, n=5000)
            + World(meta={"sent": 1}, wake=0, runs={"r": "writing -50 - -1 8 7 6 5 4 2"}),
        ),
        Case(
            "only what was replaced is counted as replaced",
            stored(a=100),
            send(out("a"), replace=True, run="r"),
            "2",
            stored(a=5000).but(runs={"r": "writing 0 - -1 0 0 1 0 0 0"}),
        ),
        Case(
            "what is sent after the end of a run is counted still",
            World(runs={"r": "committed -50 -40 7 1 0 0 0 0 0"}),
            send(out("a"), run="r"),
            "1",
            stored(a=5000).but(meta={"sent": 1}, wake=1, runs={"r": "committed -50 -40 7 2 0 0 0 0 0"}),
        ),
        Case(
            "what is refused for want of room is not counted",
            stored(y=1000),
            send(out("a"), max_length=1, run="r"),
            QueueFullError,
            stored(y=1000),
        ),
    ]


CASES = [
    *_into_the_empty_queue(),
    *_beside_others(),
    *_onto_every_state(),
    *_replacing_every_state(),
    *_replacing(),
    *_limited(),
    *_remembered(),
    *_in_a_run(),
]
CASES += logged(
    CASES,
    {
        "one message": ["sent 0; ids a; dues 5000; retries 3"],
        "due at once": ["sent 0; ids a; dues 0; retries 3"],
        "due in the past": ["sent 0; ids a; dues -7; retries 3"],
        "some with headers": ["sent 0; ids a b c; dues 5000 6000 7000; retries 3 4 5"],
        "an id twice in a batch is sent once, as it came first": ["sent 0; ids a b; dues 5000 5000; retries 3 3"],
        "pending before": [],
        "dead before": ["sent 0; ids a; dues 5000; retries 3"],
        "replacing, retry before": ["replaced 0; ids a; dues 5000; retries 3"],
        "replacing, leased before": [],
        "replacing, garbage before": [],
        "replacing changes everything that was sent": ["replaced 0; ids a; dues 9000; retries 0"],
        "an id twice in a batch is replaced once, as it came first": ["replaced 0; ids a; dues 6000; retries 3"],
        "past the limit": [],
        "an existing id needs no room": [],
        "settled": [],
        "everything that can become of a message": ["sent 0; ids n; dues 5000; retries 3"],
        "everything that can become of a message, replacing": [
            "replaced 0; ids e f; dues 5000 7000; retries 3 3",
            "sent 0; ids n m; dues 5000 6000; retries 3 3",
        ],
        "the first call of a run begins its record": ["sent 0; run r; ids a b; dues 5000 5000; retries 3 3"],
        "each answer is counted, replacing": [
            "replaced 0; run r; ids e; dues 5000; retries 3",
            "sent 0; run r; ids n; dues 5000; retries 3",
        ],
        "what is refused for want of room is not counted": [],
    },
)


def _waits(due: int = 5000, headers: str = "", attributes: str = "") -> World:
    return World(successors={"a": After(due, 3, headers, "new", attributes)}, meta={"schema": 2})


def _following() -> list[Case]:
    """Send `a` to follow what runs: else it replaces."""
    idle = [case for case in CASES if case.name.startswith("replacing, ") and case.name != "replacing, leased before"]
    assert len(idle) == len(STATES) - 1
    replaced = stored(a=5000, p=1).but(meta={"schema": 2})
    waiting = World(pending={"a": 6000, "p": 1}, retries={"a": 2, "p": 3}, messages={"a": "A", "p": "new"})
    return [
        *(
            Case(f"to follow: {one.name}", one.before, send(out("a"), replace="after"), one.reply, one.after)
            for one in idle
        ),
        Case(
            "to follow what runs, with a priority",
            LEASED,
            send(out("a", attributes=b"priority=1"), replace="after"),
            "6",
            with_meta(LEASED, _waits(attributes="priority=1"), World(meta={"priority_step": 60_000})),
        ),
        Case("to follow what runs", LEASED + CROWD, send(out("a"), replace="after"), "6", LEASED + _waits() + CROWD),
        Case(
            "to follow what runs, with headers and attributes, due at once",
            LEASED,
            send(out("a", 0, headers=b"h\n", attributes=b"name=n"), replace="after"),
            "6",
            LEASED + _waits(0, "h\n", "name=n"),
        ),
        Case(
            "to follow what runs, in the place of another",
            LEASED + _waits(60_000, "old"),
            send(out("a"), replace="after"),
            "6",
            LEASED + _waits(),
        ),
        Case(
            "to follow what runs, twice in a batch",
            LEASED,
            send(out("a", 6000), out("a"), replace="after"),
            "60",
            LEASED + _waits(6000),
        ),
        Case(
            "to follow what runs takes no room",
            LEASED,
            send(out("a"), replace="after", max_length=1),
            "6",
            LEASED + _waits(),
        ),
        Case(
            "some follow, some are new: in a run",
            LEASED,
            send(out("a"), out("b"), replace="after", run="r"),
            "61",
            with_meta(LEASED, _waits(), stored(b=5000), World(meta={"sent": 1}, wake=1))
            + World(runs={"r": "writing 0 - -1 1 0 1 0 0 0"}),
        ),
        *(
            Case(
                f"what waits is forgotten for what replaces: {replace}",
                waiting + _waits(7000),
                send(out("a"), replace=replace),
                "2",
                replaced,
            )
            for replace in (True, "after", "moved up")
        ),
        Case(
            "what waits stays beside what exists", waiting + _waits(7000), send(out("a")), "0", waiting + _waits(7000)
        ),
        Case(
            "what waits stays beside what runs",
            LEASED + _waits(7000),
            send(out("a"), replace=True),
            "3",
            LEASED + _waits(7000),
        ),
        Case(
            "what waits is not looked at while the schema is 1",
            waiting + _waits(7000).but(meta={"schema": 1}),
            send(out("a"), replace=True),
            "2",
            replaced + _waits(7000).but(meta={"schema": 1}),
        ),
        *(
            Case(f"moved up, {name}: nothing", world, send(out("a"), replace="moved up"), "0", world)
            for name, world in {
                "leased": LEASED + _waits(),
                "garbage": GARBAGE + _waits(),
                "gone": World(),
                "followed by nothing": waiting,
            }.items()
        ),
        Case(
            "moved up, settled: nothing",
            remembering(1000, a=-1),
            send(out("a"), replace="moved up"),
            "0",
            remembering(1000, a=-1),
        ),
    ]


CASES += _following()
CASES += logged(
    CASES,
    {
        "to follow what runs": [],
        "some follow, some are new: in a run": ["sent 0; run r; ids b; dues 5000; retries 3"],
        "what waits is forgotten for what replaces: moved up": ["replaced 0; ids a; dues 5000; retries 3"],
    },
)


def _held() -> list[Case]:
    """Send `a`, which is held for a time, or asks to be."""
    new = stored(a=5000).but(meta={"sent": 1}, wake=1)
    asking = new.but(attributes={"a": "name=n unique_for=600"}, meta={"sent": 1, "schema": 2, "unique": 1})
    after = new.but(attributes={"a": "unique_after=9"}, meta={"sent": 1, "schema": 2, "unique": 1})
    return [
        Case(
            "held from the send",
            World(),
            send(out("a", attributes=b"name=n unique_for=600")),
            "1",
            asking.but(done={"a": 600.5}),
        ),
        Case("held from the end: not yet", World(), send(out("a", attributes=b"unique_after=9")), "1", after),
        Case(
            "held from the send, beside a dedupe window",
            remembering(1000, a=-2000),
            send(out("a", attributes=b"name=n unique_for=600")),
            "1",
            with_meta(asking, remembering(1000)).but(done={"a": 600.5}),
        ),
        Case(
            "of several, some are held",
            reserved(z=1.5),
            send(out("a", attributes=b"name=n unique_for=600"), out("b"), out("a", attributes=b"unique_for=700")),
            "110",
            with_meta(asking, stored(a=5000, b=5000), World(meta={"sent": 2, "unique": 1})).but(
                attributes=asking.attributes, done={"z": 1.5, "a": 600.5}, wake=1
            ),
        ),
        Case("reserved until its end", reserved(a=1.5), send(out("a")), "5", reserved(a=1.5)),
        Case(
            "reserved until its end, to be replaced",
            reserved(a=1.5),
            send(out("a"), replace=True),
            "5",
            reserved(a=1.5),
        ),
        Case(
            "reserved until its end, not until that of the window",
            with_meta(remembering(1000), reserved(a=0.5)),
            send(out("a")),
            "1",
            with_meta(new, remembering(1000), reserved(a=0.5)),
        ),
        Case(
            "reserved until that of the window, where it has no own end",
            with_meta(remembering(1000), reserved(a=-999)),
            send(out("a")),
            "5",
            with_meta(remembering(1000), reserved(a=-999)),
        ),
        Case("its end has come", reserved(a=0.5), send(out("a")), "1", with_meta(new, reserved(a=0.5))),
        Case("settled without an own end", reserved(a=0), send(out("a")), "1", with_meta(new, reserved(a=0))),
        Case(
            "held while its message waits: the message counts",
            with_meta(stored(a=5000), reserved(a=600.5)),
            send(out("a", 6000), replace=True),
            "2",
            with_meta(stored(a=6000), reserved(a=600.5)),
        ),
        Case(
            "a name that begins so asks for nothing",
            World(),
            send(out("a", attributes=b"name=unique_for")),
            "1",
            new.but(attributes={"a": "name=unique_for"}, meta={"sent": 1, "schema": 2}),
        ),
    ]


CASES += _held()
CASES += in_new_queues(CASES)
