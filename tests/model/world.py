"""A small world of the walk: all that is stored of a few messages and what their clients know, as one small value.

Two worlds that differ only in what nothing looks at are one value: times are milliseconds from now, what lies long in
the past keeps its order only, tokens are numbered in their order, the totals are left out but for what the next claim
looks at, and clients have no names.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import msgspec

from delayq.broker.keys import Keys
from delayq.broker.requests import Outgoing, Receipt
from tests.model.limit_world import UNLIMITED, Limited, known_limits, limit_commands, limits_of
from tests.model.model import STEP as RANK_STEP
from tests.model.model import Dead, Message, Model, Successor
from tests.model.scan import record, tokens_by_id, tombstone, waiting_text

NOW = 1_700_000_000_000
"""The time of every call."""
STEP = 10
"""All delays are multiples of it, and so far the clock is set back."""
AHEAD = STEP
"""How long before it is due a turn claims a message."""
LONG_AGO = -2 * STEP
"""Times before it keep their order only: the clock is not set back so far."""
KEPT_DUE = -5
"""The due time of what has been promoted: without limits nothing looks at it, and it must stay."""
WINDOW = 2 * STEP
"""The dedupe window, where it is on."""
RETRIES = 1
KEPT = b"kept"
"""The record of a message that was completed before: nothing looks at it, and it must stay."""


class Life(NamedTuple):
    """A living message."""

    state: str
    due: int
    left: int
    attempts: int
    first: int
    token: int
    until: int
    promoted: bool
    payload: str
    error: str
    attributes: str = ""
    """As stored, but for the start of a burst, which is in ms from now."""


class Death(NamedTuple):
    """An entry of the dead letter."""

    at: int
    id: str
    token: int
    attempts: int
    payload: str
    reason: str
    error: str


class Known(NamedTuple):
    """A receipt that a client remembers, and whether it is of the life that its id lives now."""

    id: str
    token: int
    is_current: bool


class Client(NamedTuple):
    """What a client knows, and what the server remembers of its last claim."""

    receipts: tuple[Known, ...]
    claim: tuple[tuple[str, int], ...] | None


class State(NamedTuple):
    """A world."""

    lives: dict[str, Life]
    after: dict[str, tuple[int, str, str]]
    """Due time, payload and attributes of what waits to follow a message."""
    ready: str
    retry: str
    dead: tuple[Death, ...]
    done: dict[str, int]
    last: int
    """The last token."""
    is_ahead: bool
    """Whether the last token is above the time, as after a step back of the clock."""
    delivered: int
    """Deliveries, modulo four: every fourth tries the retries first."""
    backs: int
    """How often the clock was set back."""
    clients: tuple[Client, ...]
    completed: dict[str, int]
    """Until when the results of ids are kept."""
    limited: Limited
    lost: tuple[tuple[Any, ...], str] | None = None
    """A call whose reply was lost, and what it answered."""


def pack(state: State) -> bytes:
    return msgspec.msgpack.encode(state)


unpack = msgspec.msgpack.Decoder(State).decode


def token_at(state: State, rank: int) -> int:
    """Return the token of a rank, 0 for none."""
    return rank and NOW * 1000 + (500 if state.is_ahead else -500) + rank


def model_of(state: State, *, window: bool) -> Model:
    """Return the model of a world."""
    model = Model()
    for number, (id, life) in enumerate(state.lives.items(), 1):
        first, token = token_at(state, life.first), token_at(state, life.token)
        until = life.until + NOW if life.state in {"leased", "backoff"} else 0
        due, payload, left, attempts = life.due + NOW, life.payload.encode(), life.left, life.attempts
        progress = (left, life.state, life.promoted, attempts, first, token, "w" if first else "-", until, life.error)
        attributes = _absolute(life.attributes)
        model.messages[id] = Message(number, id, due, RETRIES, payload, b"", *progress, attributes)
        model.step = model.step or (RANK_STEP if "priority=" in life.attributes else 0)
    model.born = len(model.messages)
    for id, (due, payload, text) in state.after.items():
        follower = Outgoing(id, due, RETRIES, payload.encode(), b"", _absolute(text))
        model.successors[id] = Successor(due + NOW, follower)
    for client in state.clients:
        for known in client.receipts:
            life_of = model.messages[known.id].life if known.is_current else 0
            model.lives[Receipt(known.id, token_at(state, known.token))] = life_of
        for id, rank in client.claim or ():
            message, token = model.messages.get(id), token_at(state, rank)
            is_so = message and message.first and message.first <= token
            model.lives.setdefault(Receipt(id, token), message.life if message and is_so else 0)
    model.ready, model.retry = offered(model, state.ready, "ready"), offered(model, state.retry, "retry")
    for death in state.dead:
        token = token_at(state, death.token)
        message = Message(0, death.id, NOW + KEPT_DUE, RETRIES, death.payload.encode(), b"", 0)
        message.attempts, message.token = death.attempts, token
        model.dead[f"{death.id}:{token}"] = Dead(NOW + death.at, message, death.reason, death.error)
    model.token, model.totals["delivered"] = token_at(state, state.last), state.delivered
    model.window = (WINDOW, 100) if window else None
    model.done = {id: NOW + at for id, at in state.done.items()}
    model.completed = {id: (NOW + at, KEPT) for id, at in state.completed.items()}
    model.limits = limits_of(state.limited, {id: model.rank(id) for id in state.lives}, NOW)
    has_attributes = any(message.attributes for message in model.messages.values())
    model.schema = 2 if has_attributes or model.successors or model.limits.flag else 0
    return model


def offered(model: Model, entries: str, state: str) -> list[str]:
    """Return the living ids of a list, in the order in which a claim meets them first."""
    return [id for id in dict.fromkeys(entries) if id in model.messages and model.messages[id].state == state]


def commands(keys: Keys, state: State, model: Model) -> tuple[list[list[Any]], list[Any]]:
    """Return what plants a world: the commands, and apart from them the one for the remembered answers."""
    hashes: dict[str, dict[Any, Any]] = {
        "messages": {m.id: m.payload.decode() for m in model.messages.values()},
        "retries": {m.id: m.left for m in model.messages.values()},
        "deliveries": {m.id: record(m).decode() for m in model.messages.values() if m.promoted},
        "attributes": {m.id: m.attributes.decode() for m in model.messages.values() if m.attributes},
        "errors": {m.id: m.error for m in model.messages.values() if m.error},
        "successors": {id: waiting_text(one).decode() for id, one in model.successors.items()},
        "results": {id: record.decode() for id, (_, record) in model.completed.items()},
        "dead_messages": {entry: tombstone(death).decode() for entry, death in model.dead.items()},
        "dead_ids": {id: tokens.decode() for id, tokens in tokens_by_id(model.dead).items()},
        "meta": {
            "schema": model.schema,
            "token": model.token,
            "delivered": state.delivered,
            "backoffs": len(model.ids("backoff")),
            "priority_step": model.step,
            "stale_ready": len(state.ready) - len(model.ready),
            "stale_retry": len(state.retry) - len(model.retry),
        },
    }
    zsets = {
        "pending": {m.id: m.due for m in model.messages.values() if m.state == "pending"},
        "ranked": {id: model.rank(id) for id in model.ids("ranked")},
        "unack": {m.id: m.until for m in model.messages.values() if m.state in {"leased", "backoff"}},
        "dead": {entry: death.at for entry, death in model.dead.items()},
        "done": model.done,
        "completed": {id: until for id, (until, _) in model.completed.items()},
    }
    hashes["meta"] = {name: number for name, number in hashes["meta"].items() if number}
    if model.window:
        hashes["meta"]["dedupe"] = f"{WINDOW} 100"
    made = [["HSET", getattr(keys, part), *_flat(held)] for part, held in hashes.items() if held]
    made += [["ZADD", getattr(keys, part), *_flat(held, turned=True)] for part, held in zsets.items() if held]
    made += [["RPUSH", getattr(keys, part), *ids] for part, ids in lists(state) if ids]
    if garbage := model.ids("garbage"):
        made.append(["SADD", keys.garbage, *garbage])
    made += limit_commands(keys, model.limits)
    replies = {}
    for number, client in enumerate(state.clients):
        if client.claim is not None:
            pairs = " ".join(f"{id} {token_at(state, token)}" for id, token in client.claim)
            replies[claims_of(number)] = f"1 {NOW} {pairs}"
    if state.lost:
        replies["lost.call"] = f"1 {NOW} {state.lost[1]}"
    return made, ["HSET", keys.meta, *_flat(replies)] if replies else ["EXISTS", keys.meta]


def claims_of(client: int) -> str:
    """Return the slot of a client's claims."""
    return f"claims.{client}"


def lists(state: State) -> tuple[tuple[str, str], ...]:
    return ("ready", state.ready), ("retry", state.retry)


def _flat(held: dict[Any, Any], *, turned: bool = False) -> list[str]:
    return [str(cell) for pair in held.items() for cell in (pair[::-1] if turned else pair)]


class Memory(NamedTuple):
    """What the clients know, in true tokens."""

    receipts: list[list[Receipt]]
    claims: list[list[Receipt] | None]


def memory_of(state: State) -> Memory:
    return Memory(
        [[Receipt(one.id, token_at(state, one.token)) for one in client.receipts] for client in state.clients],
        [
            client.claim and [Receipt(id, token_at(state, token)) for id, token in client.claim]
            for client in state.clients
        ],
    )


def state_of(
    model: Model, memory: Memory, ready: str, retry: str, *, shift: int, backs: int, lost: Any, longest: int
) -> State:
    """Return the world of a model and its clients after the clock has gone on by `shift`.

    A client remembers its `longest` last receipts.
    """
    now = NOW + shift
    receipts = [sorted(set(known), key=lambda one: one.token)[-longest:] for known in memory.receipts]
    messages = [model.messages[id] for id in sorted(model.messages)]
    tokens = {model.token, *(m.token for m in messages), *(m.first for m in messages)}
    tokens.update(death.message.token for death in model.dead.values())
    tokens.update(one.token for known in (*receipts, *memory.claims) for one in known or ())
    if lost and len(lost[0]) > 2 and lost[0][0] in BY_TOKEN:
        tokens.add(lost[0][2])
        lost = ((*lost[0][:2], _Ranks(tokens)[lost[0][2]], *lost[0][3:]), lost[1])
    ranks = _Ranks(tokens)
    times = {m.due for m in messages if m.state == "pending" or model.limits.of}
    times.update(one.due for one in model.successors.values())
    texts = [m.attributes for m in (*messages, *(one.message for one in model.successors.values()))]
    times.update(int(since) for text in texts for since in _SINCE.findall(text))
    times.update(m.until for m in messages if m.state in {"leased", "backoff"})
    past = sorted((at for at in times if at - now < LONG_AGO), reverse=True)

    def ago(at: int) -> int:
        return at - now if at - now >= LONG_AGO else LONG_AGO - STEP * (1 + past.index(at))

    def relative(attributes: bytes) -> str:
        return _SINCE.sub(lambda since: b"since=%d" % ago(int(since[1])), attributes).decode()

    lives = {}
    for m in messages:
        due = ago(m.due) if m.state == "pending" or model.limits.of else KEPT_DUE
        until = ago(m.until) if m.state in {"leased", "backoff"} else 0
        progress = (m.left, m.attempts, ranks[m.first], ranks[m.token], until, m.promoted)
        lives[m.id] = Life(m.state, due, *progress, m.payload.decode(), m.error, relative(m.attributes))
    deaths = sorted({death.at for death in model.dead.values()}, reverse=True)
    dead = sorted(
        Death(
            *(-STEP * (1 + deaths.index(death.at)), death.message.id, ranks[death.message.token]),
            *(death.message.attempts, death.message.payload.decode(), death.reason, death.error),
        )
        for death in model.dead.values()
    )
    clients = []
    for known, claim in zip(receipts, memory.claims, strict=True):
        current = [(one.id in model.messages and model.messages[one.id].life == model.lives[one]) for one in known]
        held = [Known(one.id, ranks[one.token], is_so) for one, is_so in zip(known, current, strict=True)]
        claimed = None if claim is None else tuple((one.id, ranks[one.token]) for one in claim)
        clients.append(Client(tuple(held), claimed))
    clients.sort(key=lambda client: (client.receipts, client.claim or ()))
    after = {
        id: (ago(one.due), one.message.payload.decode(), relative(one.message.attributes))
        for id, one in sorted(model.successors.items())
    }
    return State(
        lives=lives,
        after=after,
        ready=ready,
        retry=retry,
        dead=tuple(dead),
        done={id: at - now for id, at in sorted(model.done.items()) if at - now > -WINDOW},
        last=ranks[model.token],
        is_ahead=model.token >= now * 1000,
        delivered=model.totals["delivered"] % 4,
        backs=backs,
        clients=tuple(clients),
        completed={id: max(until - now, LONG_AGO) for id, (until, _) in sorted(model.completed.items())},
        limited=known_limits(model.limits, now, LONG_AGO),
        lost=lost,
    )


_SINCE = re.compile(rb"since=(-?\d+)")


def _absolute(attributes: str) -> bytes:
    """Return attributes as they are stored."""
    return _SINCE.sub(lambda since: b"since=%d" % (NOW + int(since[1])), attributes.encode())


BY_TOKEN = ("ack", "complete", "nack", "extend", "release", "reject", "redrive", "dead_purge")


class _Ranks(dict[int, int]):
    """The rank of each token; 0, which is none, stays 0."""

    def __init__(self, tokens: set[int]) -> None:
        super().__init__({token: rank for rank, token in enumerate(sorted(tokens - {0}), 1)})
        self[0] = 0


def fresh(clients: int) -> State:
    """Return the world in which nothing has happened yet."""
    return State({}, {}, "", "", (), {}, 0, False, 0, 0, (Client((), None),) * clients, {}, UNLIMITED)
