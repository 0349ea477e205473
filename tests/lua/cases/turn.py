"""`turn`: does in a plain queue what `pending_to_unack` and `ack` do, in one call, and claims ahead of the due time."""

from __future__ import annotations

from collections.abc import Iterable

from delayq.broker.replies import ClaimReply, TurnReply
from delayq.broker.requests import Receipt, ScriptCall
from tests.lua.cases import ack, pending_to_unack
from tests.lua.cases.pending_to_unack import claimed, leased, pending
from tests.lua.cases.ready_to_unack import LEASE, given
from tests.lua.cases.states import LEASED, READY
from tests.support.scripts import NOW, After, Case, T, World, calls

SPECIAL = {
    "an event log": {"events": "* 1000"},
    "a dedupe window": {"dedupe": "60000 1000"},
    "reserved ids": {"unique": 1},
    "limits": {"limited": "rates"},
    "priorities": {"priority_step": 60_000},
}
RECEIPT = Receipt("a", T - 7)
"""That of the last delivery in `LEASED`."""


def turn(wanted: int, *receipts: Receipt, ahead: int = 0, mark: str = "") -> ScriptCall[TurnReply]:
    return calls.turn(wanted, ahead=ahead, lease=LEASE, consumer_id=f"me{mark}", receipts=receipts)


def told(reply: ClaimReply, statuses: str = "") -> TurnReply:
    return TurnReply(statuses, reply, NOW * 1000)


def settled(statuses: str) -> TurnReply:
    """Return the reply of a turn that claims nothing."""
    return TurnReply(statuses, ClaimReply(0, 0, 0, []))


UNDONE = TurnReply("", None)


def _is_special(world: World) -> bool:
    return any(field in world.meta for fields in SPECIAL.values() for field in fields) or bool(world.successors)


def _as_others_do() -> Iterable[Case]:
    """Return the claims of `pending_to_unack`, and the acks of what is leased."""
    for case in pending_to_unack.CASES:
        _, wanted, lease, consumer = case.call.args
        call = calls.turn(int(wanted), ahead=0, lease=int(lease), consumer_id=str(consumer))
        plain = not _is_special(case.before) and not case.before.ranked
        reply = told(case.reply) if plain else UNDONE
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
        if special or held:
            reply, after = (UNDONE, case.before) if special else (settled(case.reply), case.after)
            yield Case(f"ack: {case.name}", case.before, turn(0, *receipts), reply, after)


def _late_acks() -> Iterable[Case]:
    """Only `ack` settles what is leased no more; what is settled already has nothing left."""
    for name, world in {
        "ready again": READY.but(deliveries={"a": "ready -5 1 T-9 T-7 -"}),
        "in backoff": LEASED.but(deliveries={"a": "backoff -5 1 T-9 T-7 w"}),
    }.items():
        yield Case(f"late: {name}", world, turn(0, RECEIPT), settled("?"), world)
    yield Case("late: settled before", World(), turn(0, RECEIPT), settled("0"), World())


def _both() -> Iterable[Case]:
    held = leased(pending(a=-9), "a")
    world = held + pending(b=-5)
    after = leased(pending(b=-5), "b")
    token = T + 1
    after = after.but(deliveries={"b": "leased -5 1 T+1 T+1 me"}, meta={"token": "T+1", "delivered": 2, "acked": 1})
    claim = claimed(given("b", token))
    yield Case("settles one and claims another", world, turn(1, Receipt("a", T), ahead=0), told(claim, "1"), after)
    yield Case(
        "settles one and finds nothing due",
        held + pending(b=5),
        turn(1, Receipt("a", T)),
        told(claimed(due=5), "1"),
        pending(b=5).but(meta={"token": "T+0", "delivered": 1, "acked": 1}),
    )
    twice = turn(0, Receipt("a", T), Receipt("a", T))
    done = World(meta={"token": "T+0", "delivered": 1, "acked": 1})
    yield Case("a receipt that is given twice settles once", held, twice, settled("10"), done)
    wrong = turn(1, Receipt("a", T + 5))
    yield Case("a wrong receipt settles nothing", held, wrong, told(claimed(deadline=LEASE), "0"), held)
    extras = held.but(headers={"a": "h", "x": "h"}, attributes={"a": "name=n"}, errors={"a": "e", "x": "e"})
    left = done.but(headers={"x": "h"}, errors={"x": "e"})
    yield Case("headers, attributes and errors go, too", extras, turn(0, Receipt("a", T)), settled("1"), left)


def _ahead() -> Iterable[Case]:
    soon = pending(a=25)
    yield Case("due within `ahead`", soon, turn(3, ahead=25), told(claimed(given("a", due=25))), leased(soon, "a"))
    yield Case("due later", soon, turn(3, ahead=24), told(claimed(due=25)), soon)
    several = pending(a=-1, b=10, c=25, d=26)
    found = claimed(given("a", due=-1), given("b", T + 1, due=10), given("c", T + 2, due=25), due=26)
    yield Case("several within `ahead`", several, turn(9, ahead=25), told(found), leased(several, "abc"))
    two = pending(a=5, b=6)
    one = told(claimed(given("a", due=5), due=6))
    yield Case("what is left wakes nobody before it is due", two, turn(1, ahead=25), one, leased(two, "a"))
    suspect = pending(a=5).but(deliveries={"a": "pending 5 1 T-9 T-8 w !"})
    alone = told(claimed(due=5))
    yield Case("who killed its consumer is not claimed ahead", suspect, turn(3, ahead=25, mark=" ?"), alone, suspect)
    paused = soon.but(meta={"paused": "0 "})
    yield Case("nothing in a pause", paused, turn(3, ahead=25), told(claimed()), paused)


def _special() -> Iterable[Case]:
    held = leased(pending(a=-9), "a")
    for name, fields in SPECIAL.items():
        world = (held + pending(b=-5)).but(meta=held.meta | fields)
        yield Case(f"{name}: nothing is done", world, turn(1, Receipt("a", T)), UNDONE, world)
    world = held.but(successors={"a": After(9, 3, "", "", "p")})
    yield Case("a successor waits: nothing is done", world, turn(0, Receipt("a", T)), UNDONE, world)


CASES = [*_as_others_do(), *_late_acks(), *_both(), *_ahead(), *_special()]
