"""The state machine finds mistakes: each script with one planted mistake fails within a few thousand steps."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from redis import ResponseError

from delayq.errors import ServerError
from tests.model.running import connected, run
from tests.support.lua_files import in_place, source_of

pytestmark = pytest.mark.timeout(600)

STEPS = 80_000
"""The run ends at the first failure, mostly within some hundred steps; the rarest takes some thousand."""


class Mutant(NamedTuple):
    """A mistake: in this file, this text is replaced by that."""

    name: str
    file: str
    text: str
    instead: str


MUTANTS = [
    Mutant("nack does not look at the token", "nack.lua", "and token == ARGV[at + 1] ", ""),
    Mutant("ack does not look at the life", "lib/receipt.lua", "tonumber(first) <= tonumber(token) and ", ""),
    Mutant("ack takes what is to be collected", "lib/receipt.lua", "and state ~= 'garbage' ", ""),
    Mutant("a message is promoted early", "pending_to_ready.lua", "tonumber(head[2]) <= now", "head[2] - 1 <= now"),
    Mutant("several messages are promoted early", "pending_to_ready.lua", "'-inf', now,", "'-inf', now + 1,"),
    Mutant("a due message is claimed early", "pending_to_unack.lua", "tonumber(head[2]) > now", "head[2] - 1 > now"),
    Mutant("a claim passes what waits in retry", "pending_to_unack.lua", "if left > 0 or not", "if not"),
    Mutant("a claim trusts every entry", "ready_to_unack.lua", "is ~= from.state or seen[id]", "not is or seen[id]"),
    Mutant(
        "tokens follow the clock back", "ready_to_unack.lua", "math.max((whole(counters[1]) or 0) + 1, time)", "time"
    ),
    Mutant(
        "a replayed claim returns what was lost",
        "lib/lease.lua",
        "state == 'leased' and last == token",
        "state == 'leased'",
    ),
    Mutant("a release is charged", "release.lua", "attempts - 1", "attempts"),
    Mutant("a backoff is charged twice", "unack_to_retry.lua", "if state == 'backoff' then", "if state == 'none' then"),
    Mutant(
        *("a stale entry is not counted", "lib/leave.lua"),
        *("increase(meta, 'stale_retry', #leaving.retry)", "local _"),
    ),
    Mutant("a re-run executes again", "lib/once.lua", "sequence == number", "false"),
    Mutant("a redrive onto a living id", "redrive.lua", "redis.call('HEXISTS', messages, id) == 1", "false"),
    Mutant("a release is not logged", "release.lua", "logged, 'released'", "false, 'released'"),
    Mutant("what was not cancelled is logged too", "cancel.lua", "'ids', cancelled)", "'ids', {unpack(ARGV, 4)})"),
    Mutant("a death is logged without its attempts", "lib/log.lua", "death.attempts", "0"),
    Mutant("the dead are not remembered", "reject.lua", "settle(done, now, ended, texts)", ""),
    Mutant("more is forgotten than twice what is settled", "lib/done.lua", "2 * #ids", "1000"),
    Mutant(
        "a run counts what exists as replaced",
        "lib/run.lua",
        "{'1', '0', '[26]', '3', '5'}",
        "{'1', '[26]', '0', '3', '5'}",
    ),
    Mutant("a place is not given back", "nack.lua", "  free_places(running, gates, wake, again, true)\n", ""),
    Mutant("a turn trusts every receipt", "lib/plain.lua", "and wins(state, first, last, token)", "and state"),
    Mutant("a turn settles twice", "lib/plain.lua", "not ended[id] and wins", "wins"),
    Mutant("a turn settles what its lease has left", "lib/plain.lua", "state == 'leased' and '1' or '?'", "'1'"),
    Mutant("a turn claims nothing else ahead", "turn.lua", "<= now + ahead do count", "<= now do count"),
    Mutant("a turn leaves what it claims", "turn.lua", "'0', taken - 1)", "'0', taken - 2)"),
    Mutant("a turn wakes nobody", "turn.lua", "if wakes then redis.call('RPUSH', wake, '1') end", ""),
    Mutant("a turn claims in a pause", "turn.lua", "(past or left > 0 or paused) and 0", "(past or left > 0) and 0"),
    Mutant("a turn claims before a successor", "turn.lua", "redis.call('HLEN', successors) > 0", "false"),
    Mutant("a turn takes a limited queue for plain", "lib/plain.lua", "or fields[after + 4] ", ""),
    Mutant("a turn made again claims anew", "turn.lua", "if past then return", "if false then return"),
    Mutant("nobody is woken", "lib/signal.lua", "due < tonumber(first)", "false"),
]


@pytest.mark.long
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_is_detected(mutant, redis_url):
    source = source_of(mutant.file)
    assert source.count(mutant.text) == 1, "the script has changed: change this mutant with it"
    with (
        in_place(mutant.file, source.replace(mutant.text, mutant.instead)),
        connected(redis_url) as executor,
        pytest.raises((AssertionError, ServerError, ResponseError, pytest.fail.Exception)),
    ):
        run(executor, STEPS, shrink=False)
