"""Random calls on the embedded and a real Redis get the replies of the model, and each id has one place."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from tests.model.player import RULES
from tests.model.running import connected, run
from tests.model.traps import TRAPS, told

# A run takes a quarter of a minute, and much longer on a busy machine or to tell a failure as short as can be.
pytestmark = pytest.mark.timeout(600)

STEPS = 16_000
ROUNDS = 10  # a rare situation may be missed by one round, hardly by ten

SITUATIONS = r"""
    send: gone → 1                        send: dead → 1                        send: leased → 3
    send: garbage → 4                     send: full                            send: named twice → 0
    send: pending → 0                     send: pending → 2                     send: pending again → [02]
    send: ready → 0                       send: ready → 2                       send: leased → 0
    send: (backoff|retry) → 0             send: (backoff|retry) → 2
    send: leased → 6                      (ack|reject): followed → 1            cancel: followed → 4
    nack: followed → [12]                 collect: followed
    debounce: (gone|dead) → 1             debounce: pending.* → 2               debounce: ready → 2
    debounce: (backoff|retry) → 2         debounce: leased → 6                  debounce: garbage → 4
    debounce: (gone|dead) → 5             debounce: limited                     debounce: run again
    complete: held → 1                    complete: late, .* → 1                complete: earlier life → 0
    complete: waited for                  complete: again                       complete: run again
    report: held → 1                      report: (late|earlier life|gone).* → 0
    collect: results                      (report|await_ends): run again

    cancel: pending → 1                   cancel: ready → 1                     cancel: leased → 2
    cancel: held → 5                      cancel: garbage → 5
    kill: pending → 1                     kill: ready → 1                       kill: leased → 2
    kill: garbage → [03]                  kill: gone → 0                        kill: dead → 3
    kill: (pending again|backoff) → 1     kill: (retry|ranked) → 1              kill: throttled → 1
    kill: followed                        kill: run again
    extend: held → 2                      release: held → 2
    cancel: garbage → 3                   cancel: gone → 0                      reschedule: pending → 1
    reschedule: ready → 1                 reschedule: leased → 2                reschedule: garbage → 3
    reschedule: gone → 0                  (cancel|reschedule): dead → 3
    (cancel|reschedule): pending again → 1
    (cancel|reschedule): backoff → 1      (cancel|reschedule): retry → 1

    promote: some moved                   promote: limited                      claim: several
    claim: reply lost                     claim: delivered again                claim: with headers
    claim: retry before ready             claim: ready before retry             claim: stale entry skipped
    claim: ranked before ready            claim: ready before ranked            claim: ranked, several
    promote: ranked                       expire: ranked                        release: ranked
    cancel: ranked → 1                    reschedule: ranked → 1                send: ranked → 0
    send: ranked → 2                      (ack|complete): late, ranked → 1      claim due: must be ranked first
    claim: an id listed twice             replay: (all|some) still held         replay: none still held
    replay: overtaken                     crash                                 clock: back

    ack: held → 1                         (ack|complete): late, (leased|backoff|pending) → 1
    (ack|complete): late, (ready|retry) → 1
    ack: late, garbage → 0                ack: earlier life → 0                 ack: gone → 0
    ack: named twice → 0                  nack: held → 1                        nack: held → 2
    nack: late, .* → 0                    (nack|extend): earlier life → 0       nack: gone → 0
    nack: named twice → 0                 extend: held → 1                      extend: late, .* → 0
    extend: gone → 0                      extend: named twice → 1               release: held → 1
    release: late, .* → 0                 (release|reject): earlier life → 0    release: gone → 0
    release: with attributes              release: a start of .* is given back
    release: named twice → 0              reject: held → 1                      reject: late, .* → 0
    reject: gone → 0                      reject: named twice → 0               .*: late, leased → 0
    .*: late, ready → 0                   .*: late, backoff → 0                 .*: late, retry → 0

    expire: retried                       expire: spent                         expire: backoff over
    collect: any                          collect: by id                        collect: trimmed
    collect: silent slot pruned           redrive: dead → 1                     redrive: gone → 0
    (redrive|.*purge): id lives .*        dead_purge: (dead|id lives) → 1       dead_purge: gone → 0
    purge: running                        pause: fresh                          pause: again
    pause: over already                   resume: paused                        resume: over by itself
    claim: paused                         claim due: paused
    claim: throttled                      claim: from a line                    claim: passes a line
    claim: throttled by rank
    claim: queue used up                  promote: next gate                    limit: (fresh|again)
    limit: what waits is judged anew      (pause|resume): a name                resume: evenly
    cancel: throttled → 1                 reschedule: throttled → 1             (ack|complete): late, throttled → 1
    declare: (anew|as before)             declare: run again
    (limit|close): run again               breaker: (trips|ends)                 breaker: (trips|ends), not
    claim: a trial of a name              claim: a trial of the queue

    turn: held → 1                        turn: late, .* → \?                   turn: late, garbage → 0
    turn: (earlier life|gone).* → 0       turn: named twice → 0                 turn: late, leased → 1
    turn: some settled, some claimed      turn: several                         turn: ahead
    turn: some left                       turn: passes nothing that waits       turn: paused
    turn: delivered again                 turn: with (headers|attributes)       turn: not plain
    turn: run again                       turn: all still held                  turn: some lost
    turn: overtaken

    send: run again                       cancel: run again                     reschedule: run again
    pending_to_ready: run again           unack_to_retry: run again             ack: run again
    nack: run again                       extend: run again                     release: run again
    reject: run again                     collect_garbage: run again            redrive: run again
    (dead_)?purge: run again              (pause|resume): run again

    log: on                               log: off                              log: lost
    send: in a run                        send: (gone|dead) → 5
    send: named twice → 5                 send: settled before the window
"""
"""What every run must have met, so that its success says something; as patterns, where each alone is too rare."""


def seldom_met(reached: Counter[str], least: int) -> dict[str, int]:
    patterns = re.split(r"\s{2,}", SITUATIONS.strip())
    met = {one: sum(reached[what] for what in reached if re.fullmatch(one, what)) for one in patterns}
    return {one: times for one, times in met.items() if times < least}


def seldom_tried(reached: Counter[str], least: int) -> dict[str, int]:
    """Return the rules that were followed less often, and the traps that were walked into less often."""
    names = [f"rule: {name}" for name in RULES] + [f"trap: {told(trap)}" for trap in TRAPS]
    return {name: reached[name] for name in names if reached[name] < least}


@pytest.fixture(params=[pytest.param("embedded", marks=pytest.mark.torture), "redis"])
def executor(request):
    with connected("memory://model" if request.param == "embedded" else request.getfixturevalue("redis_url")) as opened:
        yield opened


@pytest.mark.long
def test_embedded_redis_matches_the_model():
    with connected("memory://model") as executor:
        run(executor, STEPS // 10)


def test_some_thousand_steps_match_the_model(redis_url):
    reached: Counter[str] = Counter()
    with connected(redis_url) as executor:
        run(executor, STEPS // 4, reached)
    assert len(seldom_met(reached, least=1)) < 20  # of 206: the long tests go on until none is left


@pytest.mark.long
def test_every_reply_and_all_stored_data_match_the_model(executor):
    reached: Counter[str] = Counter()
    for _ in range(ROUNDS):
        run(executor, STEPS, reached)
        if not seldom_met(reached, least=1) and not seldom_tried(reached, least=5):
            break
    assert not seldom_met(reached, least=1)
    assert not seldom_tried(reached, least=5)


@pytest.mark.torture
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(40))
def test_two_million_steps_reach_each_situation_a_thousand_times(executor, part):
    reached: Counter[str] = Counter()
    run(executor, 50_000, reached)
    assert not seldom_met(reached, least=25)
    assert not seldom_tried(reached, least=25)
