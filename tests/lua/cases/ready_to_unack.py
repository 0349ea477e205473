"""`ready_to_unack`: order, fairness, tokens, leases, and entries that are not what they seem."""

from __future__ import annotations

from typing import Any

from delayq.broker.replies import ClaimedMessage, ClaimReply
from delayq.broker.requests import ScriptCall
from tests.lua.cases import keyed_claims, limited_claims
from tests.lua.cases.states import in_new_queues, logged
from tests.support.scripts import NOW, Case, T, World, calls

LEASE = 30_000


def claim(wanted: int, mark: str = "") -> ScriptCall[ClaimReply]:
    return calls.ready_to_unack(wanted, lease=LEASE, consumer_id=f"me{mark}")


def claimed(*deliveries: ClaimedMessage, left: int = 0, alone: bool = False) -> ClaimReply:
    return ClaimReply(NOW, NOW + LEASE, left, list(deliveries), alone)


def given(
    id: str,
    token: int = T,
    *,
    retries: int = 3,
    attempt: int = 1,
    headers: bytes = b"",
    attributes: bytes = b"",
    due: int = -5,
) -> ClaimedMessage:
    """Return a delivery of a message of `waiting`."""
    return ClaimedMessage(id, token, id.upper().encode(), retries, NOW + due, attempt, headers, attributes)


def waiting(ready: str = "", retry: str = "", **others: object) -> World:
    """Return fresh messages in ready, and messages delivered once in retry; an id a letter."""
    ids = ready + retry
    return World(
        ready=list(ready),
        retry=list(retry),
        retries=dict.fromkeys(ids, 3),
        messages={id: id.upper() for id in ids},
        deliveries=dict.fromkeys(ready, "ready -5 0 0 0 -") | dict.fromkeys(retry, "retry -5 1 T-9 T-9 w"),
    ).but(**others)


def ranked(**ranks: int) -> World:
    """Return messages that were due 5 ms ago, each with its rank."""
    return World(
        ranked=ranks,
        retries=dict.fromkeys(ranks, 3),
        messages={id: id.upper() for id in ranks},
        attributes=dict.fromkeys(ranks, "priority=1"),
        deliveries=dict.fromkeys(ranks, "ranked -5 0 0 0 -"),
        meta={"priority_step": 60_000},
    )


def _plain() -> list[Case]:
    abc = waiting("abc")
    return [
        Case("nothing there", World(), claim(3), claimed(), World()),
        *(
            Case(f"paused {how}", waiting("a", "b", meta=meta), claim(3), claimed(), waiting("a", "b", meta=meta))
            for how, meta in {"until later": {"paused": f"{NOW + 10**9} x"}, "without an end": {"paused": "0 "}}.items()
        ),
        Case(
            "paused until now",
            waiting("a", meta={"paused": f"{NOW} x"}),
            claim(3),
            claimed(given("a")),
            waiting("a").but(
                ready=[],
                unack={"a": LEASE},
                deliveries={"a": "leased -5 1 T+0 T+0 me"},
                meta={"token": "T+0", "delivered": 1, "paused": f"{NOW} x"},
            ),
        ),
        Case(
            "one message",
            waiting("a"),
            claim(3),
            claimed(given("a")),
            waiting("a").but(
                ready=[],
                unack={"a": LEASE},
                deliveries={"a": "leased -5 1 T+0 T+0 me"},
                meta={"token": "T+0", "delivered": 1},
            ),
        ),
        Case(
            "first come, first served; who leaves some behind wakes the next",
            abc,
            claim(2),
            claimed(given("a"), given("b", T + 1), left=1),
            abc.but(
                ready=["c"],
                unack={"a": LEASE, "b": LEASE},
                deliveries=abc.deliveries | {"a": "leased -5 1 T+0 T+0 me", "b": "leased -5 1 T+1 T+1 me"},
                meta={"token": "T+1", "delivered": 2},
                wake=1,
            ),
        ),
        Case(
            "a wake-up that is not taken yet is enough",
            waiting("ab", wake=1),
            claim(1),
            claimed(given("a"), left=1),
            waiting("ab").but(
                ready=["b"],
                unack={"a": LEASE},
                deliveries={"a": "leased -5 1 T+0 T+0 me", "b": "ready -5 0 0 0 -"},
                meta={"token": "T+0", "delivered": 1},
                wake=1,
            ),
        ),
        Case("none wanted: the wake-up is passed on", waiting("a"), claim(0), claimed(left=1), waiting("a", wake=1)),
        Case(
            "none wanted, retries wait",
            waiting("", "a"),
            claim(0),
            claimed(left=1),
            waiting("", "a", wake=1),
        ),
        Case("none wanted, none there", World(), claim(0), claimed(), World()),
        Case(
            "attributes come along with those that have some",
            waiting("ab", headers={"b": "hb"}, attributes={"a": "name=a"}),
            claim(2),
            claimed(given("a", attributes=b"name=a"), given("b", T + 1, headers=b"hb")),
            waiting("ab").but(
                ready=[],
                unack={"a": LEASE, "b": LEASE},
                headers={"b": "hb"},
                attributes={"a": "name=a"},
                deliveries={"a": "leased -5 1 T+0 T+0 me", "b": "leased -5 1 T+1 T+1 me"},
                meta={"token": "T+1", "delivered": 2},
            ),
        ),
        Case(
            "headers come along with those that have some",
            waiting("ab", headers={"b": "hb"}),
            claim(2),
            claimed(given("a"), given("b", T + 1, headers=b"hb")),
            waiting("ab").but(
                ready=[],
                unack={"a": LEASE, "b": LEASE},
                headers={"b": "hb"},
                deliveries={"a": "leased -5 1 T+0 T+0 me", "b": "leased -5 1 T+1 T+1 me"},
                meta={"token": "T+1", "delivered": 2},
            ),
        ),
        Case(
            "no retries left, and those that are not stored",
            waiting("ab", retries={"a": 0}),
            claim(2),
            claimed(given("a", retries=0), given("b", T + 1)),
            waiting("ab").but(
                ready=[],
                retries={"a": 0},
                unack={"a": LEASE, "b": LEASE},
                deliveries={"a": "leased -5 1 T+0 T+0 me", "b": "leased -5 1 T+1 T+1 me"},
                meta={"token": "T+1", "delivered": 2},
            ),
        ),
    ]


def _lives() -> list[Case]:
    return [
        Case(
            "a retry keeps the first token of its life",
            waiting("", "a"),
            claim(1),
            claimed(given("a", attempt=2)),
            waiting("", "a").but(
                retry=[],
                unack={"a": LEASE},
                deliveries={"a": "leased -5 2 T-9 T+0 me"},
                meta={"token": "T+0", "delivered": 1},
            ),
        ),
        Case(
            "a released message keeps the first token of its life, and its attempt is counted again",
            waiting("a", deliveries={"a": "ready -7 0 T-9 T-9 w"}),
            claim(1),
            claimed(given("a", attempt=1, due=-7)),
            waiting("a").but(
                ready=[],
                unack={"a": LEASE},
                deliveries={"a": "leased -7 1 T-9 T+0 me"},
                meta={"token": "T+0", "delivered": 1},
            ),
        ),
        Case(
            "tokens rise, even if the clock goes back",
            waiting("ab", meta={"token": "T+500", "delivered": 8}),
            claim(2),
            claimed(given("a", T + 501), given("b", T + 502)),
            waiting("ab").but(
                ready=[],
                unack={"a": LEASE, "b": LEASE},
                deliveries={"a": "leased -5 1 T+501 T+501 me", "b": "leased -5 1 T+502 T+502 me"},
                meta={"token": "T+502", "delivered": 10},
            ),
        ),
        Case(
            "a token drawn this very microsecond is not drawn again",
            waiting("a", meta={"token": "T+0"}),
            claim(1),
            claimed(given("a", T + 1)),
            waiting("a").but(
                ready=[],
                unack={"a": LEASE},
                deliveries={"a": "leased -5 1 T+1 T+1 me"},
                meta={"token": "T+1", "delivered": 1},
            ),
        ),
    ]


def _unstarted() -> list[Case]:
    """Messages whose consumers died before they had started them: `s` and `t` in retry."""
    suspects = {"s": "retry -5 0 T-9 T-9 w ?", "t": "retry -5 0 T-9 T-8 w !"}

    def world(ready: str = "", retry: str = "", **others: object) -> World:
        known = waiting(ready, retry)
        return known.but(deliveries=known.deliveries | {id: suspects[id] for id in retry if id in suspects}, **others)

    def after(before: World, deliveries: dict[str, str], **others: object) -> World:
        return before.but(
            unack=dict.fromkeys(deliveries, LEASE),
            deliveries=before.deliveries | deliveries,
            meta={"token": f"T+{len(deliveries) - 1}", "delivered": len(deliveries)},
            **others,
        )

    return [
        Case(
            "a consumer that reports starts is marked",
            world("ab"),
            claim(2, " ?"),
            claimed(given("a"), given("b", T + 1)),
            after(world("ab"), {"a": "leased -5 1 T+0 T+0 me ?", "b": "leased -5 1 T+1 T+1 me ?"}, ready=[]),
        ),
        *(
            Case(
                f"one that may have killed its consumer is claimed alone: {id}",
                world("", f"{id}bc"),
                claim(9, " ?"),
                claimed(given(id), left=2, alone=True),
                after(world("", f"{id}bc"), {id: "leased -5 1 T-9 T+0 me !"}, retry=["b", "c"], wake=1),
            )
            for id in suspects
        ),
        Case(
            "the last one there is claimed alone",
            world("", "s"),
            claim(9, " ?"),
            claimed(given("s"), alone=True),
            after(world("", "s"), {"s": "leased -5 1 T-9 T+0 me !"}, retry=[]),
        ),
        Case(
            "what comes after it in the list stays in order",
            world("", "sbcd"),
            claim(16, " ?"),
            claimed(given("s"), left=3, alone=True),
            after(world("", "sbcd"), {"s": "leased -5 1 T-9 T+0 me !"}, retry=["b", "c", "d"], wake=1),
        ),
        Case(
            "it waits until another is claimed",
            world("a", "s"),
            claim(3, " ?"),
            claimed(given("a"), left=1),
            after(world("a", "s"), {"a": "leased -5 1 T+0 T+0 me ?"}, ready=[], wake=1),
        ),
        Case(
            "it waits until others are claimed, and stays where it was",
            world("a", "bstc"),
            claim(3, " ?"),
            claimed(given("a"), given("b", T + 1, attempt=2), left=3),
            after(
                world("a", "bstc"),
                {"a": "leased -5 1 T+0 T+0 me ?", "b": "leased -5 2 T-9 T+1 me ?"},
                ready=[],
                retry=["s", "t", "c"],
                wake=1,
            ),
        ),
        Case(
            "without a consumer that reports starts it is claimed with others",
            world("", "stc"),
            claim(2),
            claimed(given("s"), given("t", T + 1), left=1),
            after(
                world("", "stc"),
                {"s": "leased -5 1 T-9 T+0 me", "t": "leased -5 1 T-9 T+1 me"},
                retry=["c"],
                wake=1,
            ),
        ),
        Case(
            "one released that was to run alone is claimed alone",
            waiting("abc", deliveries={"a": "ready -5 0 T-9 T-9 w !", "b": "ready -5 0 T-9 T-9 w ?"}),
            claim(3, " ?"),
            claimed(given("a"), left=2, alone=True),
            after(
                waiting("abc", deliveries={"b": "ready -5 0 T-9 T-9 w ?"}),
                {"a": "leased -5 1 T-9 T+0 me !"},
                ready=["b", "c"],
                wake=1,
            ),
        ),
        Case(
            "other released ones are claimed with others",
            waiting("ab", deliveries={"a": "ready -5 0 T-9 T-9 w ?", "b": "ready -5 0 T-9 T-9 w ?"}),
            claim(2, " ?"),
            claimed(given("a"), given("b", T + 1)),
            after(waiting("ab"), {"a": "leased -5 1 T-9 T+0 me ?", "b": "leased -5 1 T-9 T+1 me ?"}, ready=[]),
        ),
    ]


def _fair() -> list[Case]:
    both = waiting("abcdef", "uvwxyz")

    def case(name: str, delivered: int, wanted: int, order: str) -> Case:
        attempts = {id: 1 if id in "abcdef" else 2 for id in order}
        tokens = {id: T + n for n, id in enumerate(order)}
        return Case(
            name,
            both.but(meta={"delivered": delivered}),
            claim(wanted),
            claimed(*[given(id, tokens[id], attempt=attempts[id]) for id in order], left=12 - len(order)),
            both.but(
                ready=[id for id in both.ready if id not in order],
                retry=[id for id in both.retry if id not in order],
                unack=dict.fromkeys(order, LEASE),
                deliveries=both.deliveries
                | {id: f"leased -5 1 T+{n} T+{n} me" for n, id in enumerate(order) if id in "abcdef"}
                | {id: f"leased -5 2 T-9 T+{n} me" for n, id in enumerate(order) if id in "uvwxyz"},
                meta={"token": f"T+{len(order) - 1}", "delivered": delivered + len(order)},
                wake=1 if len(order) < 12 else 0,
            ),
        )

    return [
        case("the first three of four are ready ones", 0, 3, "abc"),
        case("of four one is a retry, and it comes first", 0, 4, "uabc"),
        case("the fourth of four is a retry", 3, 1, "u"),
        case("the first of the next four is a ready one", 4, 1, "a"),
        case("a quarter, counted over the calls", 3, 6, "uvabcd"),
        case("ready ones first, retries fill up", 0, 10, "uvabcdefwx"),
        case("all there is", 0, 12, "uvwabcdefxyz"),
        Case(
            "more wanted than there are",
            waiting("a", "u"),
            claim(5),
            claimed(given("u", attempt=2), given("a", T + 1)),
            waiting("a", "u").but(
                ready=[],
                retry=[],
                unack={"a": LEASE, "u": LEASE},
                deliveries={"u": "leased -5 2 T-9 T+0 me", "a": "leased -5 1 T+1 T+1 me"},
                meta={"token": "T+1", "delivered": 2},
            ),
        ),
    ]


def _stale() -> list[Case]:
    def case(name: str, record: str | None, place: str, **held: object) -> Case:
        """A stale entry `x` before a live one, `a`."""
        live = waiting("a") if place == "ready" else waiting("", "a")
        kept = {} if record is None else {"x": record}
        attempt, first = (1, "T+0") if place == "ready" else (2, "T-9")
        before = live.but(
            **{place: ["x", "a"]},
            deliveries=live.deliveries | kept,
            messages={"a": "A", "x": "X"},
            meta={f"stale_{place}": 1},
            **held,
        )
        return Case(
            f"{name}, in {place}",
            before,
            claim(1),
            claimed(given("a", attempt=attempt)),
            before.but(
                **{place: []},
                unack={"a": LEASE} | before.unack,
                deliveries=kept | {"a": f"leased -5 {attempt} {first} T+0 me"},
                meta={"token": "T+0", "delivered": 1},
            ),
        )

    again = waiting("a").but(ready=["a", "a"], meta={"stale_ready": 1})
    elsewhere = waiting("a").but(ready=["u", "a"], meta={"stale_ready": 1}) + waiting("", "u")
    between = waiting("abcd").but(ready=[*"axbycd"], meta={"stale_ready": 2})
    alone = World(ready=["g"], deliveries={"g": "ready -5 0 0 0 -"})
    ghost = waiting("a").but(
        ready=["g", "g", "a"],
        retry=["h"],
        deliveries={"g": "ready -5 0 0 0 -", "h": "retry -5 1 T-9 T-9 w", "a": "ready -5 0 0 0 -"},
        meta={"stale_ready": 1},
    )
    return [
        *(
            case(name, record, place, **held)
            for place in ("ready", "retry")
            for name, record, held in (
                ("an entry of a cancelled or acked message", None, {}),
                ("an entry of a rescheduled message", "pending 5 1 T-9 T-9 w", {"pending": {"x": 5}}),
                ("an entry of a leased message", "leased -5 2 T-9 T-9 w", {"unack": {"x": 5}}),
            )
        ),
        Case(
            "an old entry of a message that is ready again: claimed once",
            again,
            claim(2),
            claimed(given("a")),
            again.but(
                ready=[],
                unack={"a": LEASE},
                deliveries={"a": "leased -5 1 T+0 T+0 me"},
                meta={"token": "T+0", "delivered": 1},
            ),
        ),
        Case(
            "an old entry in ready of a message that is in retry: claimed from there",
            elsewhere,
            claim(3),
            claimed(given("a", T), given("u", T + 1, attempt=2)),
            elsewhere.but(
                ready=[],
                retry=[],
                unack={"a": LEASE, "u": LEASE},
                deliveries={"a": "leased -5 1 T+0 T+0 me", "u": "leased -5 2 T-9 T+1 me"},
                meta={"token": "T+1", "delivered": 2},
            ),
        ),
        Case(
            "a record without a message is dropped",
            ghost,
            claim(3),
            claimed(given("a")),
            ghost.but(
                ready=[],
                retry=[],
                unack={"a": LEASE},
                deliveries={"a": "leased -5 1 T+0 T+0 me"},
                meta={"token": "T+0", "delivered": 1},
            ),
        ),
        Case("nothing but a record without a message", alone, claim(1), claimed(), World()),
        Case(
            "as many as wanted, though stale entries stand between",
            between,
            claim(3),
            claimed(given("a"), given("b", T + 1), given("c", T + 2), left=1),
            between.but(
                ready=["d"],
                unack=dict.fromkeys("abc", LEASE),
                deliveries={
                    "a": "leased -5 1 T+0 T+0 me",
                    "b": "leased -5 1 T+1 T+1 me",
                    "c": "leased -5 1 T+2 T+2 me",
                    "d": "ready -5 0 0 0 -",
                },
                meta={"token": "T+2", "delivered": 3},
                wake=1,
            ),
        ),
        Case(
            "nothing but stale entries",
            World(ready=["x", "y"], retry=["z"], meta={"stale_ready": 2, "stale_retry": 1}),
            claim(1),
            claimed(),
            World(),
        ),
    ]


def _held(world: World, ids: str, *, mark: str = "", **places: Any) -> World:
    """Return a world after a claim of these messages of it, in this order."""
    records = {}
    for n, id in enumerate(ids):
        _, due, attempts, first, *_ = world.deliveries[id].split(" ")
        records[id] = f"leased {due} {int(attempts) + 1} {f'T+{n}' if first == '0' else first} T+{n} me{mark}"
    return world.but(
        ready=[id for id in world.ready if id not in ids],
        retry=[id for id in world.retry if id not in ids],
        ranked={id: rank for id, rank in world.ranked.items() if id not in ids},
        unack=dict.fromkeys(ids, LEASE),
        deliveries=world.deliveries | records,
        meta=world.meta | {"token": f"T+{len(ids) - 1}", "delivered": len(ids)},
    ).but(**places)


def _ranked() -> list[Case]:
    """Messages with a priority are claimed by rank, among those in ready, which stand there by their due times."""

    def prior(id: str, n: int, **more: int) -> ClaimedMessage:
        return given(id, T + n, attributes=b"priority=1", **more)

    dues = {"a": "ready -50 0 0 0 -", "b": "ready -40 0 0 0 -", "c": "ready -40 0 0 0 -", "d": "ready -30 0 0 0 -"}
    ready = waiting("abcd", deliveries=dues)
    mixed = ready + ranked(k=-45, l=-40, m=-31, n=20)
    order = [given("a", due=-50), prior("k", 1), given("b", T + 2, due=-40), given("c", T + 3, due=-40)]
    order += [prior("l", 4), prior("m", 5), given("d", T + 6, due=-30), prior("n", 7)]
    retried = mixed + waiting(retry="r")
    suspect = ranked(k=-9, l=-8).but(
        deliveries={"k": "ranked -5 0 T-9 T-9 w !", "l": "ranked -5 0 0 0 -"},
    )
    alone = _held(suspect, "k", mark=" !", wake=1)
    behind = suspect.but(deliveries={"k": "ranked -5 0 0 0 -", "l": "ranked -5 0 T-9 T-9 w !"})
    foreign = ranked(k=-9, x=-8, y=-7) + waiting("a")
    foreign = foreign.but(
        deliveries={**foreign.deliveries, "x": "pending 5 1 T-9 T-9 w"}, messages={"k": "K", "a": "A"}
    )
    del foreign.deliveries["y"]
    many = ranked(**{f"m{n:03}": n for n in range(250)})
    before, after = ready + ranked(k=-60), waiting("a", deliveries=dues) + ranked(k=-45, l=-40, m=-31, n=20)
    beside = waiting("a") + ranked(k=-3)
    elsewhere = {"unack": {"x": 7}, "deliveries": beside.deliveries | {"x": "leased 900000 1 T-9 T-9 w"}}
    stale = beside.but(ready=["x", "a"], meta=beside.meta | {"stale_ready": 1}, **elsewhere)
    first_of_all = beside.but(ranked={"x": -9, "k": -3}, **elsewhere)
    in_order = _held(beside.but(**elsewhere), "ak", unack={"x": 7, "a": LEASE, "k": LEASE})
    return [
        Case("a stale entry of ready has no rank", stale, claim(9), claimed(given("a"), prior("k", 1)), in_order),
        Case("nor has one of ranked", first_of_all, claim(9), claimed(given("a"), prior("k", 1)), in_order),
        Case(
            "no more of ready than are wanted, after all of ranked",
            before,
            claim(4),
            claimed(
                prior("k", 0),
                given("a", T + 1, due=-50),
                given("b", T + 2, due=-40),
                given("c", T + 3, due=-40),
                left=1,
            ),
            _held(before, "kabc", wake=1),
        ),
        Case(
            "no more of ranked than are wanted, after all of ready",
            after,
            claim(4),
            claimed(given("a", due=-50), prior("k", 1), prior("l", 2), prior("m", 3), left=1),
            _held(after, "aklm", wake=1),
        ),
        Case("ranked only", ranked(k=-9), claim(3), claimed(prior("k", 0)), _held(ranked(k=-9), "k")),
        Case("by rank, among what is ready", mixed, claim(9), claimed(*order), _held(mixed, "akbclmdn")),
        *(
            Case(
                f"the first {n} by rank",
                mixed,
                claim(n),
                claimed(*order[:n], left=8 - n),
                _held(mixed, "akbclmdn"[:n], wake=1),
            )
            for n in (1, 2, 4, 5, 7)
        ),
        Case(
            "retries keep their turns",
            retried,
            claim(4),
            claimed(
                given("r", attempt=2), given("a", T + 1, due=-50), prior("k", 2), given("b", T + 3, due=-40), left=5
            ),
            _held(retried, "rakb", wake=1),
        ),
        Case(
            "retries come after all that is ranked, if it is not their turn",
            ranked(k=9) + waiting(retry="r"),
            claim(2),
            claimed(prior("k", 0), given("r", T + 1, attempt=2)),
            _held(ranked(k=9) + waiting(retry="r"), "kr"),
        ),
        Case(
            "ranked, in a pause",
            ranked(k=9).but(meta={"priority_step": 60_000, "paused": "0 "}),
            claim(2),
            claimed(),
            ranked(k=9).but(meta={"priority_step": 60_000, "paused": "0 "}),
        ),
        Case("none wanted, one is ranked", ranked(k=9), claim(0), claimed(left=1), ranked(k=9).but(wake=1)),
        Case(
            "a ranked message that may have killed its consumer is claimed alone",
            suspect,
            claim(3, " ?"),
            claimed(prior("k", 0), left=1, alone=True),
            alone.but(deliveries={"k": "leased -5 1 T-9 T+0 me !", "l": "ranked -5 0 0 0 -"}),
        ),
        Case(
            "it waits until others are claimed",
            behind,
            claim(3, " ?"),
            claimed(prior("k", 0), left=1),
            _held(behind, "k", mark=" ?", wake=1),
        ),
        Case(
            "what has moved elsewhere since, and what is no message, is dropped from ranked",
            foreign,
            claim(9),
            claimed(prior("k", 0), given("a", T + 1)),
            _held(foreign, "ka", ranked={}),
        ),
        Case(
            "more than are read at a time",
            many,
            claim(240),
            claimed(
                *(
                    ClaimedMessage(id, T + n, id.upper().encode(), 3, NOW - 5, 1, b"", b"priority=1")
                    for n, id in enumerate(list(many.ranked)[:240])
                ),
                left=10,
            ),
            many.but(
                ranked={f"m{n:03}": n for n in range(240, 250)},
                unack=dict.fromkeys(list(many.ranked)[:240], LEASE),
                deliveries=many.deliveries
                | {id: f"leased -5 1 T+{n} T+{n} me" for n, id in enumerate(list(many.ranked)[:240])},
                meta={"priority_step": 60_000, "token": "T+239", "delivered": 240},
                wake=1,
            ),
        ),
        Case(
            "while the queue has no step, ranked is not looked at",
            ranked(k=9).but(meta={}) + waiting("a"),
            claim(2),
            claimed(given("a")),
            _held(ranked(k=9).but(meta={}) + waiting("a"), "a"),
        ),
    ]


CASES = [*_plain(), *_lives(), *_unstarted(), *_fair(), *_stale(), *_ranked()]
CASES += logged(
    CASES,
    {
        "nothing there": [],
        "a consumer that reports starts is marked": [
            "delivered 0; holder me; ids a b; tokens T+0 T+1; dues -5 -5; attempts 1 1; retries 3 3",
        ],
        "none wanted: the wake-up is passed on": [],
        "one message": ["delivered 0; holder me; ids a; tokens T+0; dues -5; attempts 1; retries 3"],
        "no retries left, and those that are not stored": [
            "delivered 0; holder me; ids a b; tokens T+0 T+1; dues -5 -5; attempts 1 1; retries 0 3",
        ],
        "more wanted than there are": [
            "delivered 0; holder me; ids u a; tokens T+0 T+1; dues -5 -5; attempts 2 1; retries 3 3",
        ],
        "a released message keeps the first token of its life, and its attempt is counted again": [
            "delivered 0; holder me; ids a; tokens T+0; dues -7; attempts 1; retries 3",
        ],
        "a record without a message is dropped": [
            "delivered 0; holder me; ids a; tokens T+0; dues -5; attempts 1; retries 3",
        ],
        "nothing but a record without a message": [],
        "nothing but stale entries": [],
        "ranked only": ["delivered 0; holder me; ids k; tokens T+0; dues -5; attempts 1; retries 3"],
    },
)
CASES += limited_claims.READY
CASES += keyed_claims.READY
CASES += logged(
    CASES,
    {
        "the head of the line holds up nobody": [
            "delivered 0; holder me; ids a c d; tokens T+0 T+1 T+2; dues -5 -5 -5; attempts 1 1 1; retries 3 3 3",
        ],
    },
)
CASES += in_new_queues(CASES)
