"""`turn`: a consumer of a plain queue settles what is done, and claims what is due or soon will be, in one call."""

from __future__ import annotations

from collections.abc import Iterable

from delayq.broker.replies import ClaimedMessage, ClaimReply, TurnReply
from delayq.broker.requests import Receipt, ScriptCall
from tests.lua.cases import ack, pending_to_unack, states
from tests.lua.cases.pending_to_unack import AB, RETRIED, SUSPECT, A, claimed, leased, pending
from tests.lua.cases.ready_to_unack import LEASE, given, waiting
from tests.lua.cases.states import in_new_queues
from tests.support.scripts import Case, T, World, calls

AHEAD = 25
NONE = World()


def turn(wanted: int = 0, *acks: str, mark: str = "") -> ScriptCall[TurnReply]:
    """Return a turn; an acknowledgement is written as an id and a token, as in `a T-9`."""
    receipts = [Receipt(id, T + int(token[1:])) for id, token in (ack.split() for ack in acks)]
    return calls.turn(wanted, ahead=AHEAD, lease=LEASE, consumer_id=f"me{mark}", receipts=receipts)


def reply(*messages: ClaimedMessage, statuses: str = "", left: int = 0, alone: bool = False, **times: int) -> TurnReply:
    """Return the reply to one that was to claim something."""
    return TurnReply(statuses, claimed(*messages, left=left, alone=alone, **times), T)


def nothing(statuses: str = "") -> TurnReply:
    """Return the reply to one that claims nothing; with statuses, to one that was not to."""
    return TurnReply(statuses, ClaimReply(0, 0, 0, [])) if statuses else reply()


NOT_PLAIN = TurnReply("", None)


def held(ids: str, **places: object) -> World:
    """Return messages under a lease, each by the token T-7."""
    return World(
        unack=dict.fromkeys(ids, 30_000),
        retries=dict.fromkeys(ids, 3),
        messages={id: id.upper() for id in ids},
        deliveries=dict.fromkeys(ids, "leased -50 2 T-9 T-7 me"),
        meta={"token": "T-3"},
    ).but(**places)


def acked(number: int = 1, **places: object) -> World:
    """Return what is left after acknowledgements."""
    return World(meta={"token": "T-3", "acked": number}).but(**places)


X = held("x")
X_AND_A = X + A


def _claims() -> list[Case]:
    abc = pending(a=-5, b=-5, c=-4)
    soon = pending(a=-5, b=AHEAD, c=AHEAD + 1)
    return [
        Case("nothing there", NONE, turn(3), nothing(), NONE),
        Case("nothing is due so soon", pending(a=26), turn(3), reply(due=26), pending(a=26)),
        Case("one is due now", pending(a=0), turn(3), reply(given("a", due=0)), leased(pending(a=0), "a")),
        Case("one is due in a moment", pending(a=25), turn(3), reply(given("a", due=25)), leased(pending(a=25), "a")),
        Case(
            "one is due, one soon, and one later",
            soon,
            turn(3),
            reply(given("a"), given("b", T + 1, due=25), due=26),
            leased(soon, "ab"),
        ),
        Case(
            "who leaves one behind that is due soon wakes the next",
            pending(a=-5, b=25),
            turn(1),
            reply(given("a"), due=25),
            leased(pending(a=-5, b=25), "a", wake=1),
        ),
        Case(
            "for what is due later nobody is woken",
            pending(a=-5, b=26),
            turn(1),
            reply(given("a"), due=26),
            leased(pending(a=-5, b=26), "a"),
        ),
        Case(
            "earliest first; who leaves some behind wakes the next",
            abc,
            turn(2),
            reply(given("a"), given("b", T + 1), due=-4),
            leased(abc, "ab", wake=1),
        ),
        Case("of two, one is wanted", AB, turn(1), reply(given("a"), due=-5), leased(AB, "a", wake=1)),
        Case(
            "a wake-up that is not taken yet is enough",
            AB.but(wake=1),
            turn(1),
            reply(given("a"), due=-5),
            leased(AB, "a", wake=1),
        ),
        Case(
            "attributes and headers come along",
            AB.but(attributes={"b": "name=b"}, headers={"a": "ha"}),
            turn(2),
            reply(given("a", headers=b"ha"), given("b", T + 1, attributes=b"name=b")),
            leased(AB.but(attributes={"b": "name=b"}, headers={"a": "ha"}), "ab"),
        ),
        Case(
            "no retries left, and those that are not stored",
            AB.but(retries={"a": 0}),
            turn(2),
            reply(given("a", retries=0), given("b", T + 1)),
            leased(AB.but(retries={"a": 0}), "ab"),
        ),
        Case(
            "the first deadline is told",
            A.but(unack={"x": 7, "y": 9}),
            turn(1),
            reply(given("a"), deadline=7),
            leased(A, "a").but(unack={"a": LEASE, "x": 7, "y": 9}),
        ),
        Case(
            "the next schedule is told",
            A.but(schedules={"s": 60_000}),
            turn(1),
            reply(given("a"), schedule=60_000),
            leased(A.but(schedules={"s": 60_000}), "a"),
        ),
        Case(
            "a message that was delivered before keeps the first token of its life",
            RETRIED,
            turn(1),
            reply(given("a", attempt=3)),
            leased(RETRIED, "a").but(deliveries={"a": "leased -5 3 T-9 T+0 me"}),
        ),
        Case(
            "tokens rise, even if the clock goes back",
            AB.but(meta={"token": "T+500", "delivered": 8}),
            turn(2),
            reply(given("a", T + 501), given("b", T + 502)),
            leased(AB, "ab").but(
                deliveries={"a": "leased -5 1 T+501 T+501 me", "b": "leased -5 1 T+502 T+502 me"},
                meta={"token": "T+502", "delivered": 10},
            ),
        ),
        Case(
            "an id without a message is dropped",
            AB.but(messages={"b": "B"}, deliveries={"a": "pending -5 0 0 0 -"}),
            turn(2),
            reply(given("b")),
            leased(AB, "b").but(pending={}, messages={"b": "B"}),
        ),
        Case(
            "nothing but an id without a message",
            World(pending={"a": -5}, deliveries={"a": "pending -5 0 0 0 -"}),
            turn(2),
            nothing(),
            NONE,
        ),
    ]


def _holds_back() -> list[Case]:
    """Nothing is claimed, or all is left to the general way."""
    paused = {"until later": A.but(meta={"paused": f"{T // 1000 + 1} x"}), "for good": A.but(meta={"paused": "0 "})}
    places = {"ready": waiting("y"), "retry": waiting("", "y")}
    special = {
        "events": "0-* 9",
        "dedupe": "1000 9",
        "unique": 1,
        "limited": "starts",
        "priority_step": 60_000,
    }
    later = A.but(meta={"token": "T-3"})
    return [
        *(Case(f"paused {how}", world, turn(3), nothing(), world) for how, world in paused.items()),
        Case(
            "paused, one is acknowledged all the same",
            X_AND_A.but(meta={"token": "T-3", "paused": "0 "}),
            turn(3, "x T-7"),
            reply(statuses="1"),
            A.but(meta={"token": "T-3", "paused": "0 ", "acked": 1, "delivered": 0}),
        ),
        *(
            Case(f"one waits in {place}", world + A, turn(3), reply(left=1, due=-5), world + A)
            for place, world in places.items()
        ),
        Case(
            "one waits in ready, and one is acknowledged",
            waiting("y") + X_AND_A,
            turn(3, "x T-7"),
            reply(statuses="1", left=1, due=-5),
            waiting("y") + later.but(meta={"token": "T-3", "acked": 1}),
        ),
        *(
            Case(f"the queue uses {name}", world, turn(3, "x T-7"), NOT_PLAIN, world)
            for name, world in (
                (name, X_AND_A.but(meta={"token": "T-3", name: value})) for name, value in special.items()
            )
        ),
        Case("one is to follow", X_AND_A + states.AFTER, turn(3, "x T-7"), NOT_PLAIN, X_AND_A + states.AFTER),
    ]


def _acks() -> list[Case]:
    xy = held("xy")
    return [
        Case("one is acknowledged", X, turn(0, "x T-7"), nothing("1"), acked()),
        Case("two are acknowledged", xy, turn(0, "x T-7", "y T-7"), nothing("11"), acked(2)),
        Case("by an earlier token of this life", X, turn(0, "x T-9"), nothing("1"), acked()),
        Case("by a token of an earlier life", X, turn(0, "x T-10"), nothing("0"), X),
        Case("by a token that nobody has drawn", X, turn(0, "x T-6"), nothing("0"), X),
        Case("one that is gone", NONE, turn(0, "x T-7"), nothing("0"), NONE),
        Case("twice in one call", X, turn(0, "x T-7", "x T-9"), nothing("10"), acked()),
        Case("one wins, one loses", xy, turn(0, "x T-6", "y T-7"), nothing("01"), held("x") + acked(meta={"acked": 1})),
        *(
            Case(f"one that is {state} is for ack", world, turn(0, "a T-7"), nothing("?"), world)
            for state, world in (
                ("rescheduled", states.RESCHEDULED),
                ("released", states.RELEASED),
                ("backoff", states.BACKOFF),
                ("retry", states.RETRY),
            )
        ),
        Case("one that is to be collected", states.GARBAGE, turn(0, "a T-7"), nothing("0"), states.GARBAGE),
        Case("one that is dead", states.DEAD, turn(0, "a T-7"), nothing("0"), states.DEAD),
        Case("one that never ran", states.PENDING, turn(0, "a T-7"), nothing("0"), states.PENDING),
        Case(
            "its headers, attributes and error go, those of others stay",
            held(
                "xy",
                headers={"x": "hx", "y": "hy"},
                attributes={"x": "name=x", "y": "name=y"},
                errors={"x": "", "y": "e"},
            ),
            turn(0, "x T-7"),
            nothing("1"),
            held("y", headers={"y": "hy"}, attributes={"y": "name=y"}, errors={"y": "e"}).but(
                meta={"token": "T-3", "acked": 1}
            ),
        ),
        Case("a crowd stays as it is", X + states.CROWD, turn(0, "x T-7"), nothing("1"), acked() + states.CROWD),
        Case(
            "one is asked to stop",
            states.STOPPING.but(errors={}),
            turn(0, "a T-7"),
            nothing("1"),
            acked(),
        ),
        Case(
            "one is acknowledged, and one claimed",
            X_AND_A,
            turn(1, "x T-7"),
            reply(given("a"), statuses="1", deadline=30_000),
            leased(A, "a").but(meta={"token": "T+0", "delivered": 1, "acked": 1}),
        ),
        Case(
            "none wins, and one is claimed",
            X_AND_A,
            turn(2, "x T-6", "y T-7"),
            reply(given("a"), statuses="00", deadline=30_000),
            X + leased(A, "a"),
        ),
        Case(
            "one is acknowledged, and nothing is due",
            X + pending(a=26),
            turn(1, "x T-7"),
            reply(statuses="1", due=26),
            pending(a=26).but(meta={"token": "T-3", "acked": 1}),
        ),
        Case(
            "nothing is claimed unless it is wanted",
            X_AND_A,
            turn(0, "x T-7"),
            nothing("1"),
            A.but(meta={"token": "T-3", "acked": 1}),
        ),
        Case(
            "counters go on",
            (X + AB).but(meta={"token": "T-3", "delivered": 5, "acked": 4}),
            turn(5, "x T-7"),
            reply(given("a"), given("b", T + 1), statuses="1", deadline=30_000),
            leased(AB, "ab").but(meta={"token": "T+1", "delivered": 7, "acked": 5}),
        ),
    ]


def _unstarted() -> list[Case]:
    """Messages whose consumers died before they had started them, and that were rescheduled since."""

    def world(suspect: str) -> World:
        return SUSPECT.but(deliveries={suspect: "pending -5 0 T-9 T-9 w !"})

    early = pending(a=5).but(deliveries={"a": "pending 5 0 T-9 T-9 w !"})
    return [
        Case(
            "a consumer that reports starts is marked",
            AB,
            turn(2, mark=" ?"),
            reply(given("a"), given("b", T + 1)),
            leased(AB, "ab", " ?"),
        ),
        Case(
            "one that may have killed its consumer is claimed alone",
            world("a"),
            turn(3, mark=" ?"),
            reply(given("a"), alone=True, due=-4),
            leased(world("a"), "a", wake=1).but(deliveries={"a": "leased -5 1 T-9 T+0 me !"}),
        ),
        Case(
            "it waits until others are claimed",
            world("b"),
            turn(3, mark=" ?"),
            reply(given("a"), due=-4),
            leased(world("b"), "a", " ?", wake=1),
        ),
        Case(
            "it is claimed as soon as it is due",
            early.but(pending={"a": 0}),
            turn(3, mark=" ?"),
            reply(given("a", due=0), alone=True),
            leased(early.but(pending={"a": 0}), "a").but(deliveries={"a": "leased 0 1 T-9 T+0 me !"}),
        ),
        Case(
            "other released ones are claimed with others",
            AB.but(deliveries={"b": "pending -5 0 T-9 T-9 w ?"}),
            turn(2, mark=" ?"),
            reply(given("a"), given("b", T + 1)),
            leased(AB, "ab").but(deliveries={"a": "leased -5 1 T+0 T+0 me ?", "b": "leased -5 1 T-9 T+1 me ?"}),
        ),
        Case("it is not claimed before it is due", early, turn(3, mark=" ?"), reply(due=5), early),
        Case(
            "without a consumer that reports starts it is claimed with others",
            world("b"),
            turn(2),
            reply(given("a"), given("b", T + 1, due=-4), due=-3),
            leased(world("b"), "ab", wake=1).but(
                deliveries={"a": "leased -5 1 T+0 T+0 me", "b": "leased -4 1 T-9 T+1 me"}
            ),
        ),
    ]


SPECIAL = {"events", "dedupe", "unique", "limited", "priority_step"}


def _is_special(world: World) -> bool:
    return bool(SPECIAL & world.meta.keys() or world.successors)


def _as_others_do() -> Iterable[Case]:
    """Return the claims of `pending_to_unack`, and the acks of what is leased."""
    for case in pending_to_unack.CASES:
        _, wanted, lease, consumer = case.call.args
        call = calls.turn(int(wanted), ahead=0, lease=int(lease), consumer_id=str(consumer))
        plain = not _is_special(case.before) and not case.before.ranked
        reply = TurnReply("", case.reply, T) if plain else NOT_PLAIN
        if plain or _is_special(case.before):
            yield Case(f"claim: {case.name}", case.before, call, reply, case.after if plain else case.before)
    for case in ack.CASES:
        receipts = [
            Receipt(str(id), int(token)) for id, token in zip(case.call.args[2::2], case.call.args[3::2], strict=True)
        ]
        outcome, special = case.call.args[1], _is_special(case.before)
        if outcome != "acked" or len(receipts) > 500 or isinstance(case.reply, type):
            continue
        held = all(case.before.deliveries.get(one.id, "").startswith("leased") for one in receipts)
        acks = calls.turn(0, ahead=0, lease=LEASE, consumer_id="me", receipts=receipts)
        if special or held:
            reply, after = (NOT_PLAIN, case.before) if special else (nothing(case.reply), case.after)
            yield Case(f"ack: {case.name}", case.before, acks, reply, after)


CASES = [*_claims(), *_holds_back(), *_acks(), *_unstarted(), *_as_others_do()]
CASES += in_new_queues(case for case in CASES if "new: " not in case.name)
