"""What the loop of a worker does for its queues together: calls, waits and what follows from the replies."""

from types import SimpleNamespace

import pytest

from delayq.broker.calls import Calls
from delayq.broker.keys import Keys
from delayq.broker.requests import RedisCommand
from delayq.broker.transport.operation import Wait
from delayq.errors import ServerError
from delayq.worker.pool.pool import Identity
from delayq.worker.pool.pool_chores import CHECK_EVERY, Chore, EmptyWatch, IdentityWatch, attempt


def part(name, *, empty=True, rests=True, tick=1000):
    outlook = SimpleNamespace(empty=empty, looked_at=0.0)
    context = SimpleNamespace(calls=Calls(Keys.of("delayq", name)), settings=SimpleNamespace(tick=tick))
    queue = SimpleNamespace(context=context, loop=SimpleNamespace(outlook=outlook), identity=None)
    return SimpleNamespace(
        name=name, queue=queue, watched=True, is_empty=empty, rests_until=9.0 if rests else None, outlook=outlook
    )


def parts(*some):
    return {one.name: one for one in some}


def test_a_chore_waits_and_gets_its_replies():
    heard = []

    def steps():
        yield Wait(5)
        heard.append((yield ["a", "b"]))
        heard.append((yield ["c"]))

    chore = Chore(steps())
    assert chore.calls(100.0) == []
    assert chore.next_at == 105.0
    assert chore.calls(104.0) == []
    assert chore.calls(105.0) == ["a", "b"]
    chore.answer([1, 2], 106.0)
    assert chore.calls(106.0) == ["c"]
    assert not chore.ended
    chore.answer([3], 107.0)
    assert chore.ended
    assert chore.calls(1e9) == []
    assert heard == [([1, 2], 106.0), ([3], 107.0)]


def test_empty_queues_that_rest_are_looked_at_with_one_command_a_tick():
    some = parts(part("a"), part("b"), part("full", empty=False), part("awake", rests=False))
    watch = EmptyWatch(some)
    chore = Chore(watch.run())
    chore.calls(0.0)
    assert chore.next_at == 1.0
    (look,) = chore.calls(1.0)
    assert look.args[0] == "EXISTS"
    assert {*look.args[1:]} == {*Keys.of("delayq", "a").of_work, *Keys.of("delayq", "b").of_work}
    chore.answer([look.parse(0)], 1.5)
    assert chore.next_at == 2.5
    assert not watch.found
    assert (some["a"].outlook.looked_at, some["b"].outlook.looked_at) == (1.5, 1.5)


@pytest.mark.parametrize("error", [None, ServerError("EXISTS: NOPERM")])
def test_what_holds_something_is_found(error):
    some = parts(part("a"), part("b"))
    watch = EmptyWatch(some)
    chore = Chore(watch.run())
    chore.calls(0.0)
    (look,) = chore.calls(1.0)
    chore.answer([look.parse(1) if error is None else error], 1.0)
    checks = chore.calls(1.0)
    assert [check.args[1:] for check in checks] == [Keys.of("delayq", name).of_work for name in ("a", "b")]
    chore.answer([checks[0].parse(0), checks[1].parse(1) if error is None else error], 1.1)
    assert watch.found == [some["b"]]


def test_many_empty_queues_are_looked_at_in_parts_within_a_tick():
    watch = EmptyWatch(parts(*(part(f"q{number}") for number in range(1000))))
    chore = Chore(watch.run())
    now, commands = 0.0, 0
    chore.calls(now)
    while now < 10.0:
        now = chore.next_at
        (look,) = chore.calls(now)
        commands += 1
        chore.answer([look.parse(0)], now)
    assert commands <= 51
    assert all(one.outlook.looked_at >= 9.0 for one in watch._parts.values())


class Owner:
    """A queue of the worker."""

    def __init__(self, identity):
        self.identity = identity


class Known:
    """Queues whose identities Redis has."""

    def __init__(self, count, *, restores=True):
        self.stored = {f"delayq:{{q{number}}}:meta": b"known" for number in range(count)}
        self.reopened = []
        self.parts = {}
        for key in self.stored:
            request = RedisCommand(("HGET", key, "identity"), lambda reply: reply)
            identity = Identity(request, lambda reply: reply == b"known", self.reopener(key), restores)
            self.parts[Owner(identity)] = None

    def reopener(self, key):
        def reopen():
            self.reopened.append(key)
            yield [RedisCommand(("PING",), bool)]

        return reopen

    def reply(self, call):
        if call.args[0] == "EXISTS":
            return call.parse(sum(key in self.stored for key in call.args[1:]))
        return True if call.args[0] == "PING" else self.stored.get(call.args[1])

    def check(self, chore, now):
        """Let one check happen; returns its commands."""
        chore.calls(now)
        commands = []
        while calls := chore.calls(now + CHECK_EVERY):
            commands += calls
            chore.answer([self.reply(call) for call in calls], now + CHECK_EVERY)
        return commands


def test_a_thousand_queues_that_are_there_cost_few_commands():
    known = Known(1000)
    chore = Chore(IdentityWatch(known.parts, in_cluster=False).run())
    assert len(known.check(chore, 0.0)) == 15
    assert not known.reopened


@pytest.mark.parametrize("count", [3, 1000])
def test_a_queue_that_is_gone_is_opened_again(count):
    known = Known(count)
    chore = Chore(IdentityWatch(known.parts, in_cluster=False).run())
    lost = f"delayq:{{q{count - 1}}}:meta"
    del known.stored[lost]
    known.check(chore, 0.0)
    assert known.reopened == [lost]


def test_queues_that_others_have_made_anew_are_opened_again():
    known = Known(1000)
    known.stored = dict.fromkeys(known.stored, b"another")
    known.check(Chore(IdentityWatch(known.parts, in_cluster=False).run()), 0.0)
    assert len(known.reopened) == 1000


def test_a_queue_of_a_pattern_that_is_gone_is_left_alone_until_somebody_makes_it():
    known = Known(3, restores=False)
    chore = Chore(IdentityWatch(known.parts, in_cluster=False).run())
    (first, second, _) = known.stored
    del known.stored[first]
    known.stored[second] = b"another"
    known.check(chore, 0.0)
    assert known.reopened == [second]


def test_the_queues_of_a_cluster_are_asked_one_by_one():
    known = Known(100)
    commands = known.check(Chore(IdentityWatch(known.parts, in_cluster=True).run()), 0.0)
    assert [call.args[0] for call in commands] == ["HGET"] * 100


def test_an_operation_within_a_chore_ends_with_its_error():
    def operation():
        yield ["a"]

    steps = attempt(operation())
    next(steps)
    error = ServerError("no")
    with pytest.raises(StopIteration) as ended:
        steps.send(([error], 1.0))
    assert ended.value.value is error
