"""`pending_to_unack`: what is due goes straight to a consumer, while nothing waits in ready and retry."""

from __future__ import annotations

from delayq.broker.replies import ClaimedMessage, ClaimReply
from delayq.broker.requests import ScriptCall
from tests.lua.cases import limited_claims
from tests.lua.cases.ready_to_unack import LEASE, given, ranked, waiting
from tests.lua.cases.states import in_new_queues, logged
from tests.support.scripts import NOW, Case, T, World, calls


def claim(wanted: int, mark: str = "") -> ScriptCall[ClaimReply]:
    return calls.pending_to_unack(wanted, lease=LEASE, consumer_id=f"me{mark}")


def claimed(*deliveries: ClaimedMessage, left: int = 0, alone: bool = False, **times: int) -> ClaimReply:
    """Return the reply; times (`due`, `deadline`, `schedule`) in milliseconds from now."""
    if deliveries:
        times["deadline"] = min(LEASE, times.get("deadline", LEASE))
    found = (NOW + times[name] if name in times else -1 for name in ("due", "deadline", "schedule"))
    return ClaimReply(NOW, NOW + LEASE, left, list(deliveries), alone, *found)


def pending(**dues: int) -> World:
    """Return messages that were never promoted, each with its due time."""
    return World(pending=dues, retries=dict.fromkeys(dues, 3), messages={id: id.upper() for id in dues})


def leased(world: World, ids: str, mark: str = "", wake: int = 0) -> World:
    """Return a world after a claim of these messages of it."""
    return world.but(
        pending={id: due for id, due in world.pending.items() if id not in ids},
        unack=dict.fromkeys(ids, LEASE),
        deliveries=world.deliveries
        | {id: f"leased {world.pending[id]} 1 T+{n} T+{n} me{mark}" for n, id in enumerate(ids)},
        meta=world.meta | {"token": f"T+{len(ids) - 1}", "delivered": len(ids)},
        wake=wake,
    )


A, AB = pending(a=-5), pending(a=-5, b=-5)
RETRIED = A.but(deliveries={"a": "pending -5 2 T-9 T-8 w"})
SUSPECT = pending(a=-5, b=-4, c=-3)


RANKED = ranked(x=-60_005)


def _plain() -> list[Case]:
    abc = pending(a=-5, b=-5, c=-4)
    return [
        Case("nothing there", World(), claim(3), claimed(), World()),
        *(
            Case(f"paused {how}", world, claim(3), claimed(), world)
            for how, world in {
                "until later": A.but(meta={"paused": f"{NOW + 1} x"}),
                "without an end": pending(a=-5, b=7).but(meta={"paused": "0 "}),
            }.items()
        ),
        Case("nothing is due yet", pending(a=1), claim(3), claimed(due=1), pending(a=1)),
        Case("one is due now", pending(a=0), claim(3), claimed(given("a", due=0)), leased(pending(a=0), "a")),
        Case(
            "one is due, and one later",
            pending(a=-5, b=7),
            claim(3),
            claimed(given("a"), due=7),
            leased(pending(a=-5, b=7), "a"),
        ),
        Case("two are due", AB, claim(3), claimed(given("a"), given("b", T + 1)), leased(AB, "ab")),
        Case(
            "two are due, and one later",
            pending(a=-5, b=-5, c=9),
            claim(5),
            claimed(given("a"), given("b", T + 1), due=9),
            leased(pending(a=-5, b=-5, c=9), "ab"),
        ),
        Case(
            "earliest first; who leaves some behind wakes the next",
            abc,
            claim(2),
            claimed(given("a"), given("b", T + 1), due=-4),
            leased(abc, "ab", wake=1),
        ),
        Case("of two, one is wanted", AB, claim(1), claimed(given("a"), due=-5), leased(AB, "a", wake=1)),
        Case(
            "a wake-up that is not taken yet is enough",
            AB.but(wake=1),
            claim(1),
            claimed(given("a"), due=-5),
            leased(AB, "a", wake=1),
        ),
        Case(
            "attributes come along with those that have some",
            AB.but(attributes={"b": "name=b"}),
            claim(2),
            claimed(given("a"), given("b", T + 1, attributes=b"name=b")),
            leased(AB.but(attributes={"b": "name=b"}), "ab"),
        ),
        Case(
            "headers come along with those that have some",
            AB.but(headers={"b": "hb"}),
            claim(2),
            claimed(given("a"), given("b", T + 1, headers=b"hb")),
            leased(AB.but(headers={"b": "hb"}), "ab"),
        ),
        Case(
            "no retries left, and those that are not stored",
            AB.but(retries={"a": 0}),
            claim(2),
            claimed(given("a", retries=0), given("b", T + 1)),
            leased(AB.but(retries={"a": 0}), "ab"),
        ),
        Case(
            "the first deadline is told, that of another lease",
            A.but(unack={"x": 7, "y": 9}),
            claim(1),
            claimed(given("a"), deadline=7),
            leased(A, "a").but(unack={"a": LEASE, "x": 7, "y": 9}),
        ),
        Case(
            "the first deadline is told, that of this claim",
            A.but(unack={"x": LEASE + 7}),
            claim(1),
            claimed(given("a"), deadline=LEASE),
            leased(A, "a").but(unack={"a": LEASE, "x": LEASE + 7}),
        ),
        Case(
            "the second is due now",
            pending(a=-5, b=0),
            claim(3),
            claimed(given("a"), given("b", T + 1, due=0)),
            leased(pending(a=-5, b=0), "ab"),
        ),
        Case(
            "who leaves one behind that is due now wakes the next",
            pending(a=-5, b=0),
            claim(1),
            claimed(given("a"), due=0),
            leased(pending(a=-5, b=0), "a", wake=1),
        ),
        Case(
            "the first deadline is told, with nothing due",
            World(unack={"x": -7}),
            claim(1),
            claimed(deadline=-7),
            World(unack={"x": -7}),
        ),
        Case(
            "the next schedule is told",
            pending(a=-5).but(schedules={"s": 60_000, "t": 70_000}),
            claim(1),
            claimed(given("a"), schedule=60_000),
            leased(pending(a=-5).but(schedules={"s": 60_000, "t": 70_000}), "a"),
        ),
        Case(
            "the next schedule is told, with nothing due",
            World(schedules={"s": 60_000}),
            claim(1),
            claimed(schedule=60_000),
            World(schedules={"s": 60_000}),
        ),
    ]


def _lists() -> list[Case]:
    """What waits in ready and retry comes first, and is not for this script."""
    return [
        Case(f"one waits in {place}", world + A, claim(3), claimed(left=1, due=-5), world + A)
        for place, world in (("ready", waiting("x")), ("retry", waiting("", "x")))
    ] + [
        Case(
            "one is ranked",
            RANKED + A,
            claim(3),
            claimed(left=1, due=-5),
            RANKED + A,
        ),
        *(
            Case(f"where messages have priorities, {name}", world, claim(3), reply, world)
            for name, world, reply in [
                (
                    "what is due must be promoted first",
                    A.but(meta={"priority_step": 60_000}),
                    claimed(due=-5)._replace(ranks=True),
                ),
                (
                    "and the queue is paused",
                    A.but(meta={"priority_step": 60_000, "paused": "0 "}),
                    claimed(),
                ),
                (
                    "nothing is due yet",
                    pending(a=1).but(meta={"priority_step": 60_000}),
                    claimed(due=1),
                ),
            ]
        ),
        Case(
            "several wait",
            waiting("xy", "z") + A,
            claim(3),
            claimed(left=3, due=-5),
            waiting("xy", "z") + A,
        ),
    ]


def _lives() -> list[Case]:
    return [
        Case(
            "a message that was delivered before keeps the first token of its life",
            RETRIED,
            claim(1),
            claimed(given("a", attempt=3)),
            leased(RETRIED, "a").but(deliveries={"a": "leased -5 3 T-9 T+0 me"}),
        ),
        Case(
            "one that was promoted before, but not delivered",
            A.but(deliveries={"a": "pending -5 0 0 0 -"}),
            claim(1),
            claimed(given("a")),
            leased(A, "a"),
        ),
        Case(
            "tokens rise, even if the clock goes back",
            AB.but(meta={"token": "T+500", "delivered": 8}),
            claim(2),
            claimed(given("a", T + 501), given("b", T + 502)),
            leased(AB, "ab").but(
                deliveries={"a": "leased -5 1 T+501 T+501 me", "b": "leased -5 1 T+502 T+502 me"},
                meta={"token": "T+502", "delivered": 10},
            ),
        ),
        Case(
            "a token drawn this very microsecond is not drawn again",
            A.but(meta={"token": "T+0"}),
            claim(1),
            claimed(given("a", T + 1)),
            leased(A, "a").but(deliveries={"a": "leased -5 1 T+1 T+1 me"}, meta={"token": "T+1", "delivered": 1}),
        ),
        Case(
            "an id without a message is dropped",
            AB.but(messages={"b": "B"}, deliveries={"a": "pending -5 0 0 0 -"}),
            claim(2),
            claimed(given("b")),
            leased(AB, "b").but(pending={}, messages={"b": "B"}),
        ),
        Case(
            "nothing but an id without a message",
            World(pending={"a": -5}, deliveries={"a": "pending -5 0 0 0 -"}),
            claim(2),
            claimed(),
            World(),
        ),
    ]


def _unstarted() -> list[Case]:
    """Messages whose consumers died before they had started them, and that were rescheduled since."""

    def world(suspect: str) -> World:
        return SUSPECT.but(deliveries={suspect: "pending -5 0 T-9 T-9 w !"})

    alone = leased(world("a"), "a", wake=1).but(deliveries={"a": "leased -5 1 T-9 T+0 me !"})
    return [
        Case(
            "a consumer that reports starts is marked",
            AB,
            claim(2, " ?"),
            claimed(given("a"), given("b", T + 1)),
            leased(AB, "ab", " ?"),
        ),
        Case(
            "one that may have killed its consumer is claimed alone",
            world("a"),
            claim(3, " ?"),
            claimed(given("a"), alone=True, due=-4),
            alone,
        ),
        Case(
            "it waits until others are claimed",
            world("b"),
            claim(3, " ?"),
            claimed(given("a"), due=-4),
            leased(world("b"), "a", " ?", wake=1),
        ),
        Case(
            "without a consumer that reports starts it is claimed with others",
            world("b"),
            claim(2),
            claimed(given("a"), given("b", T + 1, due=-4), due=-3),
            leased(world("b"), "ab", wake=1).but(
                deliveries={"a": "leased -5 1 T+0 T+0 me", "b": "leased -4 1 T-9 T+1 me"}
            ),
        ),
        Case(
            "other released ones are claimed with others",
            AB.but(deliveries={"a": "pending -5 0 T-9 T-9 w ?"}),
            claim(2, " ?"),
            claimed(given("a"), given("b", T + 1)),
            leased(AB, "ab").but(deliveries={"a": "leased -5 1 T-9 T+0 me ?", "b": "leased -5 1 T+1 T+1 me ?"}),
        ),
    ]


CASES = [*_plain(), *_lists(), *_lives(), *_unstarted()]
CASES += logged(
    CASES,
    {
        "nothing there": [],
        "nothing is due yet": [],
        "one is due, and one later": [
            "promoted 0; ids a; dues -5",
            "delivered 0; holder me; ids a; tokens T+0; dues -5; attempts 1; retries 3",
        ],
        "no retries left, and those that are not stored": [
            "promoted 0; ids a b; dues -5 -5",
            "delivered 0; holder me; ids a b; tokens T+0 T+1; dues -5 -5; attempts 1 1; retries 0 3",
        ],
        "several wait": [],
        "a consumer that reports starts is marked": [
            "promoted 0; ids a b; dues -5 -5",
            "delivered 0; holder me; ids a b; tokens T+0 T+1; dues -5 -5; attempts 1 1; retries 3 3",
        ],
        "nothing but an id without a message": [],
    },
)
CASES += limited_claims.PENDING
CASES += in_new_queues(CASES)
