"""The moves of the walk: which are possible in a world, the call each makes, and what the model makes of it."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from delayq.broker.calls import Calls
from delayq.broker.keys import Keys
from delayq.broker.message.same_id import Debounce
from delayq.broker.replies import ClaimReply, TurnReply
from delayq.broker.requests import Failure, Outgoing, Receipt, Rejection, Release, Replace, ScriptCall
from delayq.broker.results import Completed
from delayq.broker.scripts import MAX_IDS
from delayq.queue.control.limit_calls import limit_call
from delayq.values.rates import Pace
from tests.model.limit_world import coming
from tests.model.model import Model
from tests.model.world import (
    AHEAD,
    BY_TOKEN,
    NOW,
    STEP,
    Client,
    Memory,
    State,
    claims_of,
    memory_of,
    offered,
    state_of,
    token_at,
)

Move = tuple[Any, ...]

KEYS = Keys.of("model", "walk")
CALLS = Calls(KEYS, clock=lambda: NOW)
LEASE = 2 * STEP
ELSEWHERE = "a.call"
"""The slot of calls whose answer is not remembered from one world to the next."""
LOST = "lost.call"
"""The slot of the call whose reply was lost."""
UNSENT = 0
"""The sequence of a claim before the remembered one, which has the number one."""
SCRIPTS = {
    "promote": "pending_to_ready",
    "claim": "ready_to_unack",
    "claim_due": "pending_to_unack",
    "replay": "ready_to_unack",
    "overtaken": "ready_to_unack",
    "expire": "unack_to_retry",
    "collect": "collect_garbage",
    **dict.fromkeys(("pause name", "resume name"), "limit"),
}


class Rules(NamedTuple):
    """What a walk is to try."""

    ids: str = "ab"
    clients: int = 2
    memory: int = 2
    """Receipts that a client remembers."""
    wanted: tuple[int, ...] = (1, 2)
    """Messages asked for in a claim."""
    backs: int = 1
    """How often the clock is set back."""
    replays: bool = False
    """Whether claims are sent again, and arrive late."""
    losses: bool = False
    """Whether a reply is lost and the call sent again later."""
    window: bool = False
    """Whether the dedupe window is on."""
    followed: bool = False
    """Whether sends wait to follow what runs."""
    delays: tuple[int, ...] = (0, STEP)
    """When something sent, moved, failed or released is due, in ms from now."""
    attributes: tuple[str, ...] = ()
    """Attributes of the messages of each id."""
    results: bool = False
    """Whether results are kept."""
    bursts: tuple[tuple[int, int | None], ...] = ()
    """How sends are debounced."""
    limits: tuple[Move, ...] = ()
    """How limits are changed."""
    begin: State | None = None
    """The world in which the walk begins, if not in that where nothing has happened yet."""
    without: tuple[str, ...] = ()


def moves(state: State, rules: Rules) -> list[Move]:
    """Return every move that is possible in a world."""
    found: list[Move] = []
    for id, text in zip(rules.ids, rules.attributes or [""] * len(rules.ids), strict=True):
        found += [("send", id, due, replace, text) for due in rules.delays for replace in (False, True)]
        found += [("debounce", id, *how) for how in rules.bursts]
        if rules.followed:
            found += [("send", id, due, replace) for due in (0, STEP) for replace in ("after", "moved up")]
        found += [("cancel", id), ("kill", id), *(("reschedule", id, due) for due in rules.delays)]
    found += [("promote",), ("expire",), ("collect",), ("purge",), *rules.limits]
    receipts: dict[tuple[str, int], None] = {}
    for number, client in enumerate(state.clients):
        if client not in state.clients[:number]:  # those who know the same are the same
            found += [(kind, number, wanted) for kind in ("claim", "claim_due") for wanted in rules.wanted]
            found += [("turn", number, wanted, *ack) for wanted in rules.wanted for ack in _acks(client)]
            if client.claim is not None:
                found += [("replay", number), ("overtaken", number)]
            if client.receipts:
                found.append(("crash", number))
        receipts |= {(known.id, known.token): None for known in client.receipts}
    for receipt in receipts:
        found += [(kind, *receipt) for kind in ("ack", "extend", "reject")]
        found += [("complete", *receipt)] if rules.results else []
        found += [(kind, *receipt, delay) for kind in ("nack", "release") for delay in rules.delays]
    for death in state.dead:
        found += [("redrive", death.id, death.token), ("dead_purge", death.id, death.token)]
    if state.lost:
        found.append(("rerun",))
    found += [("wait", shift) for shift in _shifts(state, rules)]
    return [move for move in found if move[0] not in rules.without]


def _acks(client: Client) -> list[tuple[Any, ...]]:
    """Return what a client may acknowledge in a turn: nothing, or one of its receipts."""
    return [(), *((known.id, known.token) for known in client.receipts)]


def _shifts(state: State, rules: Rules) -> list[int]:
    """Return the steps of the clock: to the next due time or deadline, and back."""
    times: list[float] = [life.due if life.state == "pending" else life.until for life in state.lives.values()]
    next_times = [int(at) for at in (*times, *state.completed.values(), *coming(state.limited)) if at > 0]
    return ([min(next_times)] if next_times else []) + ([-STEP] if state.backs < rules.backs else [])


class Play(NamedTuple):
    """A call as it is made in one world, and where its answer is remembered."""

    call: ScriptCall[Any]
    slot: str
    sequence: int
    packed: list[Any]
    """For the server: the script and its arguments."""


def play(state: State, move: Move) -> Play | None:
    """Return the call of a move; None if it makes none."""
    kind = move[0]
    if kind in {"crash", "wait"}:
        return None
    if kind == "rerun":
        assert state.lost
        return _play(_true(state, state.lost[0]), LOST, 1)
    if kind == "claim_due":
        return _play(move, claims_of(move[1]), _SEQUENCES["claim"])
    if kind in {"claim", "replay", "overtaken"}:
        return _play(("claim", *move[1:2], *(move[2:] or (1,))), claims_of(move[1]), _SEQUENCES[kind])
    return _play(_true(state, move), ELSEWHERE, 1)


_SEQUENCES = {"claim": 2, "replay": 1, "overtaken": UNSENT}


def _true(state: State, move: Move) -> Move:
    """Return a move with the token in the place of its rank."""
    if move[0] == "turn" and len(move) > 3:
        return (*move[:4], token_at(state, move[4]))
    return (*move[:2], token_at(state, move[2]), *move[3:]) if move[0] in BY_TOKEN else move


@lru_cache(100_000)
def _play(move: Move, slot: str, sequence: int) -> Play:
    call = _CALLS[move[0]](*move[1:])
    args = [slot, str(sequence), *(one.decode() if isinstance(one, bytes) else str(one) for one in call.args)]
    return Play(call, slot, sequence, [call.script.name, args])


def _outgoing(id: str, due: int, attributes: str) -> Outgoing:
    return Outgoing(id, due, 1, b"%s due in %d" % (id.encode(), due), b"", attributes.encode())


def _send(id: str, due: int, replace: Replace, attributes: str = "") -> ScriptCall[Any]:
    return CALLS.send([_outgoing(id, due, attributes)], replace=replace, max_length=None)


def _debounced(id: str, quiet: int, at_most: int | None) -> tuple[Outgoing, Debounce]:
    return Outgoing(id, 0, 1, b"%s of a burst" % id.encode(), b"", b""), Debounce(quiet, at_most)


def _completed(id: str, token: int) -> list[Completed]:
    return [Completed(id, token, STEP, "returned", b"", "", b"done")]


def _sent(model: Model, id: str, due: int, replace: Replace, attributes: str = "") -> str:
    return model.send(NOW, [_outgoing(id, due, attributes)], replace=replace, max_length=None)


_COLLECTING: dict[str, Any] = {"limit": 100, "dead_max": 1000, "dead_ttl": 10**9}
_CALLS: dict[str, Any] = {
    "send": _send,
    "cancel": lambda id: CALLS.cancel([id]),
    "kill": lambda id: CALLS.kill([id]),
    "reschedule": lambda id, due: CALLS.reschedule([(id, due)]),
    "promote": lambda: CALLS.pending_to_ready(),
    "expire": lambda: CALLS.unack_to_retry(),
    "collect": lambda: CALLS.collect_garbage(**_COLLECTING, slot_ttl=10**9),
    "purge": lambda: CALLS.purge(),
    "claim": lambda _, wanted: CALLS.ready_to_unack(wanted, lease=LEASE, consumer_id="w"),
    "claim_due": lambda _, wanted: CALLS.pending_to_unack(wanted, lease=LEASE, consumer_id="w"),
    "turn": lambda _, wanted, *ack: CALLS.turn(
        wanted, ahead=AHEAD, lease=LEASE, consumer_id="w", receipts=[Receipt(*ack)] if ack else []
    ),
    "ack": lambda *receipt: CALLS.ack([Receipt(*receipt)]),
    "nack": lambda id, token, delay: CALLS.nack([Failure(id, token, delay, "")]),
    "extend": lambda *receipt: CALLS.extend([Receipt(*receipt)], lease=LEASE),
    "release": lambda *release: CALLS.release([Release(*release)]),
    "reject": lambda *receipt: CALLS.reject([Rejection(*receipt, "no", "")]),
    "debounce": lambda *burst: CALLS.debounce(*_debounced(*burst), max_length=None),
    "complete": lambda *receipt: CALLS.complete(_completed(*receipt)),
    "limit": lambda name, pace, places: limit_call(CALLS, name, pace=pace and Pace(*pace), places=places),
    "pause name": lambda name: limit_call(CALLS, name, paused="0"),
    "resume name": lambda name, spread: limit_call(CALLS, name, paused="-", spread=spread),
    "close": lambda name: CALLS.close(name, STEP),
    "redrive": lambda id, token: CALLS.redrive([f"{id}:{token}"], retries=None),
    "dead_purge": lambda id, token: CALLS.dead_purge([f"{id}:{token}"]),
}
CALLED = (*dict.fromkeys(SCRIPTS.get(kind, kind) for kind in _CALLS), "send_one")
"""The scripts that the moves call."""
_MODEL: dict[str, Any] = {
    "send": _sent,
    "cancel": lambda model, id: model.cancel(NOW, [id]),
    "kill": lambda model, id: model.kill(NOW, [id]),
    "reschedule": lambda model, id, due: model.reschedule(NOW, [(id, due)]),
    "expire": lambda model: model.unack_to_retry(NOW, MAX_IDS),
    "collect": lambda model: model.collect_garbage(NOW, **_COLLECTING),
    "purge": lambda model: model.purge(),
    "ack": lambda model, *receipt: model.ack(NOW, [Receipt(*receipt)], outcome="acked"),
    "nack": lambda model, id, token, delay: model.nack(NOW, [Failure(id, token, delay, "")]),
    "extend": lambda model, *receipt: model.extend(NOW, [Receipt(*receipt)], lease=LEASE),
    "release": lambda model, *release: model.release(NOW, [Release(*release)]),
    "reject": lambda model, *receipt: model.reject(NOW, [Rejection(*receipt, "no", "")]),
    "debounce": lambda model, *burst: model.debounce(NOW, *_debounced(*burst), max_length=None),
    "complete": lambda model, *receipt: model.complete(NOW, _completed(*receipt)),
    "limit": lambda model, name, pace, places: model.limit(NOW, name, pace=pace and Pace(*pace), places=places),
    "pause name": lambda model, name: model.limit(NOW, name, paused="0"),
    "resume name": lambda model, name, spread: model.limit(NOW, name, paused="-", spread=spread),
    "close": lambda model, name: model.close(NOW, name, STEP),
    "redrive": lambda model, id, token: model.redrive(NOW, [f"{id}:{token}"], retries=None),
    "dead_purge": lambda model, id, token: model.dead_purge([f"{id}:{token}"]),
}


def expected(state: State, move: Move, model: Model, memory: Memory) -> Any:
    """Make a move in the model and in the memory of the clients; returns what the call must answer."""
    kind = move[0]
    if kind == "rerun":
        assert state.lost
        return state.lost[1]
    if kind == "promote":
        others = state.ready or state.retry or any(life.state != "pending" for life in state.lives.values())
        return model.pending_to_ready(NOW, MAX_IDS, is_told=bool(others))
    if kind == "turn":
        return _expected_turn(state, _true(state, move), model, memory)
    if kind not in {"claim", "claim_due", "replay", "overtaken"}:
        return _MODEL[kind](model, *_true(state, move)[1:])
    deliveries, client, next_due, next_deadline, ranks, next_gate = [], move[1], -1, -1, False, -1
    if kind == "claim":
        waiting = {name: offered(model, getattr(state, name), name) for name in ("ready", "retry")}
        deliveries = model.ready_to_unack(NOW, move[2], LEASE, "w", **waiting)
        memory.claims[client] = [Receipt(one.id, one.token) for one in deliveries]
    elif kind == "claim_due":
        listed = [*state.ready, *state.retry, *model.ids("ranked")]
        deliveries = model.pending_to_unack(NOW, move[2], LEASE, "w", listed=listed)
        next_due, next_deadline = model.next_due(), model.next_deadline()
        ranks = bool(model.step or model.limits.flag) and not listed and 0 <= next_due <= NOW
        if deliveries:
            memory.claims[client] = [Receipt(one.id, one.token) for one in deliveries]
    elif kind == "replay":
        deliveries = model.replay(NOW, memory.claims[client] or [], LEASE)
    if kind != "claim_due":
        next_gate = model.limits.next_gate()
    memory.receipts[client].extend(Receipt(one.id, one.token) for one in deliveries)
    times = {"next_due": next_due, "next_deadline": next_deadline, "next_gate": next_gate}
    return ClaimReply(NOW, NOW + LEASE, 0, deliveries, ranks=ranks, **times)


def _expected_turn(state: State, move: Move, model: Model, memory: Memory) -> TurnReply:
    _, client, wanted, *ack = move
    if not model.is_plain():
        return TurnReply("", None)
    listed = len([*state.ready, *state.retry, *model.ids("ranked")])
    receipts = [Receipt(*ack)] if ack else []
    statuses, deliveries = model.turn(NOW, wanted, LEASE, "w", ahead=AHEAD, receipts=receipts, listed=listed)
    memory.receipts[client].extend(Receipt(one.id, one.token) for one in deliveries)
    claimed = ClaimReply(NOW, NOW + LEASE, 0, deliveries, next_due=model.next_due())
    return TurnReply(statuses, claimed, NOW * 1000)


def quiet(state: State, move: Move, model: Model, rules: Rules) -> State:
    """Return the world after a move that makes no call."""
    memory = memory_of(state)
    if move[0] == "crash":
        memory.receipts[move[1]].clear()
        memory.claims[move[1]] = None
    return following(state, model, rules, memory=memory, shift=move[1] if move[0] == "wait" else 0)


def heard(state: State, move: Move, model: Model, rules: Rules, *, memory: Memory, lists: tuple[str, str]) -> State:
    """Return the world after a call whose answer was received; `lists` are ready and retry as they stand now."""
    if not rules.replays:
        memory.claims[:] = [None] * len(memory.claims)
    return following(
        state._replace(lost=None) if move[0] == "rerun" else state, model, rules, memory=memory, lists=lists
    )


def unheard(state: State, move: Move, model: Model, rules: Rules, *, lists: tuple[str, str], reply: str) -> State:
    """Return the world after a call whose reply was lost: the client knows nothing of what it answered."""
    return following(state._replace(lost=(move, reply)), model, rules, memory=memory_of(state), lists=lists)


def following(
    state: State, model: Model, rules: Rules, *, memory: Memory, lists: tuple[str, str] | None = None, shift: int = 0
) -> State:
    ready, retry = lists or (state.ready, state.retry)
    lost = state.lost and (_true(state, state.lost[0]), state.lost[1])
    backs, longest = state.backs + (shift < 0), rules.memory
    return state_of(model, memory, ready, retry, shift=shift, backs=backs, lost=lost, longest=longest)
