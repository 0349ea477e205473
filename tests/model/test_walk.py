"""Every world reachable in a few moves is valid, and a weakened script is found by a shortest path."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from delayq.broker.scripts import script
from tests.model import laws
from tests.model.limit_world import KnownLimit, Limited
from tests.model.moves import Rules
from tests.model.running import connected, unmeasured
from tests.model.walk import Account, Violation, Walk
from tests.model.world import KEPT_DUE, STEP, Client, Known, Life, State, fresh, memory_of, model_of

pytestmark = pytest.mark.timeout(300)


def ready(limit: KnownLimit, *, scope: str, flag: str) -> State:
    """Return a world in which two messages are ready, and a limit lets one of them start."""
    lives = {id: Life("ready", 0, 1, 0, 0, 0, 0, True, f"{id} due in 0", "", "name=n") for id in "ab"}
    return fresh(1)._replace(lives=lives, ready="ab", limited=Limited({scope: limit}, {}, {}, {}, flag))


def limited(scope: str, **limit: Any) -> Rules:
    """Return rules for a limit, which is changed on the way; with few other moves, so that the walk comes far."""
    flag = "running" if "places" in limit else "starts"
    begin = ready(KnownLimit(0 if scope == "queue" else 1, **limit), scope=scope, flag=flag)
    name = None if scope == "queue" else "n"
    changes = [("limit", name, (STEP * 1000, 1), None), ("limit", name, None, 1), ("limit", name, (0, 1), 0)]
    changes += [("close", name), ("resume name", name, 2 * STEP), *([("pause name", name)] if name else [])]
    return Rules(
        clients=1,
        wanted=(2,),
        delays=(0,),
        attributes=("name=n", "name=n"),
        limits=tuple(changes),
        begin=begin,
        without=("purge", "claim_due", "turn", "extend", "reject", "kill", "redrive", "dead_purge"),
    )


RESULTS = Rules(ids="a", results=True, followed=True, memory=3, without=("purge",))
BURSTS = Rules(ids="a", bursts=((STEP, None), (STEP, 2 * STEP)), without=("purge",))
RULES = {
    "late receipts": Rules(),
    "many receipts": Rules(ids="a", memory=4, backs=2),
    "claims sent again": Rules(replays=True, without=("purge",)),
    "lost replies": Rules(losses=True, wanted=(2,), without=("purge", "kill", "turn")),
    "priorities": Rules(attributes=("priority=1", "priority=-1"), without=("purge",)),
    "dedupe window": Rules(window=True, without=("purge",)),
    "successors and results": RESULTS,
    "bursts": BURSTS,
    "how many run": limited("name:n", places=1),
    "how many start": limited("name:n", interval=STEP * 1000, burst=1),
    "how many of the queue run": limited("queue", places=1),
}
"""What is tried: all of it at once would not come far."""


@pytest.fixture
def executor(redis_url):
    # A round trip holds hundreds of calls: on a machine with other things to do it takes longer than a single one may.
    with connected(redis_url, socket_timeout=60) as opened:
        yield opened


def walk(executor, rules: Rules, least: int) -> Account:
    with unmeasured():
        return Walk(executor, rules).run(least=least)


@pytest.mark.long
@pytest.mark.parametrize("name", RULES)
def test_every_reachable_world_is_valid(executor, name):
    account = walk(executor, RULES[name], least=3_000)
    assert account.states >= 3_000
    assert account.complete >= 3


@pytest.mark.torture
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", RULES)
def test_a_million_worlds_are_valid(executor, name):
    account = walk(executor, RULES[name], least=210_000)
    print(f"{name}: {account.states} worlds, {account.calls} calls, complete to {account.complete} moves")
    assert account.states >= 210_000
    assert account.complete >= 6


class Weakened(NamedTuple):
    """A script with a piece replaced, and how many moves are needed to show what is wrong."""

    name: str
    script: str
    text: str
    instead: str
    rules: Rules
    moves: int


ONE = Rules(ids="a")
WEAKENED = [
    Weakened(
        "a nack of whatever was ever leased", "nack", "state == 'leased' and token == ARGV[at + 1]", "state", ONE, 4
    ),
    Weakened("an ack of an earlier life", "ack", "tonumber(first) <= tonumber(token) and ", "", ONE, 6),
    Weakened(
        *("a claim that trusts every entry", "ready_to_unack"),
        *("is ~= from.state or seen[id]", "not is or seen[id]", ONE, 4),
    ),
    Weakened("a release that looks at the state alone", "release", "and token == ARGV[5 * n]", "", ONE, 5),
    Weakened(
        "a promotion a moment early", "pending_to_ready", "tonumber(head[2]) <= now", "head[2] - 10 <= now", ONE, 2
    ),
    Weakened(
        "a due message is claimed early", "pending_to_unack", "tonumber(head[2]) > now", "head[2] - 10 > now", ONE, 2
    ),
    Weakened(
        *("a turn that claims more than it may ahead", "turn", "tonumber(due[2 * count + 2]) <= now + ahead"),
        *("tonumber(due[2 * count + 2]) <= now + 2 * ahead", ONE, 3),
    ),
    Weakened("a turn that passes what waits", "turn", "past or left > 0 or paused", "past or paused", ONE, 4),
    Weakened(
        *("a turn of an earlier life", "turn", "tonumber(first) <= tonumber(token) and ", "", ONE, 6),
    ),
    Weakened("a turn that settles what is not leased", "turn", "state == 'leased' and '1' or '?'", "'1'", ONE, 4),
    Weakened(
        *("a turn that overlooks what follows", "turn", "redis.call('HLEN', successors) > 0", "false", RESULTS, 4),
    ),
    Weakened(
        *("a turn that overlooks priorities", "turn", "is_special(kept, 6)", "false", RULES["priorities"], 2),
    ),
    Weakened(
        "tokens that follow the clock back",
        "ready_to_unack",
        "math.max((whole(counters[1]) or 0) + 1, time)",
        "time",
        ONE,
        4,
    ),
    Weakened(
        *("a replayed claim that returns what was lost", "ready_to_unack"),
        *("state == 'leased' and last == token", "state == 'leased'"),
        *(Rules(ids="a", replays=True), 5),
    ),
    Weakened(
        *("a start over a limit", "ready_to_unack", "(name.line or not may_start(name))", "name.line"),
        *(RULES["how many run"], 1),
    ),
    Weakened(
        *(
            "a place that is not given back",
            "ack",
            "free_places(running, gates, wake, keyed and ended or held, false)",
            "",
        ),
        *(RULES["how many run"], 2),
    ),
    Weakened("a completion of an earlier life", "complete", "tonumber(first) <= tonumber(token) and ", "", RESULTS, 6),
    Weakened("a burst that goes on after a failure", "debounce", " and attempts == '0'", "", BURSTS, 5),
]


@pytest.mark.long
@pytest.mark.parametrize("weakened", WEAKENED, ids=lambda weakened: weakened.name)
def test_weakened_script_is_found_by_a_shortest_path(executor, weakened):
    text = script(weakened.script).text.decode()
    assert text.count(weakened.text) == 1, "the script has changed: change this with it"
    texts = {weakened.script: text.replace(weakened.text, weakened.instead)}
    with unmeasured(), pytest.raises(Violation) as found:
        Walk(executor, weakened.rules, texts).run(least=20_000)
    print(found.value)
    assert len(found.value.path) == weakened.moves


NACK_ENDS = "causes[#causes + 1], causes[#causes + 2] = id, ARGV[at + 3] end\n"
ANCESTORS = """
  elseif {question} then
    statuses[n] = '1'
    redis.call('ZADD', unack, now + ARGV[at + 2], id)
"""


@pytest.mark.parametrize("question", ["redis.call('ZRANK', unack, id) ~= nil", "true"], ids=["zrank", "unasked"])
def test_nack_of_the_ancestor_revives_a_finished_message(executor, question):
    """It asks whether the reply is nil, which it never is, or does not ask: what is missing is false."""
    text = script("nack").text.decode()
    assert text.count(NACK_ENDS) == 1, "the script has changed: change this with it"
    texts = {"nack": text.replace(NACK_ENDS, NACK_ENDS + ANCESTORS.format(question=question))}
    with unmeasured(), pytest.raises(Violation) as found:
        Walk(executor, Rules(ids="a", without=("purge", "turn")), texts).run(least=20_000)
    print(found.value)
    assert [move[0] for move in found.value.path] == ["send", "claim_due", "ack", "nack"]


LEASED = Life("leased", KEPT_DUE, 1, 1, 3, 3, 20, True, "A", "")
PENDING = Life("pending", 10, 1, 0, 0, 0, 0, False, "A", "")
UNLAWFUL = [
    ("nack", LEASED, None, "moves a from active to None"),
    ("turn", PENDING._replace(due=STEP + 1), LEASED._replace(first=4, token=4), "delivered early"),
    ("pending_to_unack", PENDING, LEASED._replace(first=4, token=4), "delivered early"),
    ("extend", LEASED, LEASED._replace(state="retry", left=0, until=0), "moves a from active to retry"),
    ("pending_to_ready", PENDING, PENDING._replace(state="ready", promoted=True), "delivered early"),
    ("ready_to_unack", PENDING._replace(state="ready"), LEASED._replace(token=2, first=2), "given out before"),
    ("unack_to_retry", LEASED, LEASED._replace(state="retry", until=0), "has 1 retries left"),
    ("send", None, LEASED, "moves a from None to active"),
    ("ack", PENDING, PENDING._replace(due=0), "ack changes a, which is pending"),
    ("complete", LEASED, None, "ends {'a'} and keeps the results of set()"),
]


@pytest.mark.parametrize(("script_name", "was", "is_now", "what"), UNLAWFUL)
def test_law_violation_is_detected(script_name, was, is_now, what):
    known = (Client((Known("a", 3, is_current=False),), None),)
    worlds = [fresh(1)._replace(lives={"a": life} if life else {}, last=3, clients=known) for life in (was, is_now)]
    before, after = (model_of(world, window=False) for world in worlds)
    with pytest.raises(AssertionError, match=what):
        laws.check(script_name, before, after, memory_of(worlds[0]))


def test_start_over_a_limit_is_detected():
    before = ready(KnownLimit(1, places=1), scope="name:n", flag="running")
    lives = {
        id: before.lives[id]._replace(state="leased", attempts=1, first=n, token=n) for n, id in enumerate("ab", 1)
    }
    worlds = [before, before._replace(lives=lives, ready="", last=2)]
    with pytest.raises(AssertionError, match="2 of name:n run at a time"):
        laws.check("ready_to_unack", *(model_of(world, window=False) for world in worlds), memory_of(before))
