"""Whatever the network does to a call, it executes once and its reply is correct."""

import random
import time

import pytest

from delayq.broker.requests import Failure, Outgoing, Receipt
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.usefixtures("no_pauses", "loaded_scripts")]


def sending(calls, *ids):
    return calls.send([Outgoing(id, 0, 3, b"1", b"") for id in ids], replace=False, max_length=None)


def claiming(calls, wanted):
    return calls.ready_to_unack(wanted, lease=30_000, consumer_id="me")


def scripts_run(client):
    return client.info("commandstats")["cmdstat_evalsha"]["calls"]


@pytest.fixture
def executor(open_executor, proxy):
    """An executor behind the proxy; its scripts are loaded."""
    return open_executor(proxy.url)


@pytest.fixture
def claimed(executor, calls):
    """Ten messages under lease, as receipts."""
    executor.run([sending(calls, *(f"m{n}" for n in range(10))), calls.pending_to_ready()])
    return [Receipt(one.id, one.token) for one in executor.call(claiming(calls, 10)).messages]


@pytest.mark.parametrize("times", [1, 2, 10])
def test_send_whose_reply_is_lost_stores_once_and_reports_new(executor, calls, proxy, redis_client, times):
    executor.call(calls.purge())
    proxy.drop_replies(times)
    assert executor.call(sending(calls, "a")) == "1"
    assert proxy.dropped == times
    assert redis_client.hgetall(calls.keys.messages) == {b"a": b"1"}
    assert redis_client.zcard(calls.keys.pending) == 1
    assert redis_client.hget(calls.keys.meta, "sent") == b"1"


@pytest.mark.parametrize("times", [1, 2, 10])
def test_claim_whose_reply_is_lost_loses_no_message(executor, calls, proxy, redis_client, times):
    ids = [f"m{n:02}" for n in range(20)]
    executor.run([sending(calls, *ids), calls.pending_to_ready()])
    proxy.drop_replies(times)
    deliveries = executor.call(claiming(calls, 10)).messages
    assert proxy.dropped == times
    assert [one.id for one in deliveries] == ids[:10]
    assert {one.attempt for one in deliveries} == {1}
    assert redis_client.zcard(calls.keys.unack) == 10
    assert redis_client.llen(calls.keys.ready) == 10
    assert executor.call(calls.ack([Receipt(one.id, one.token) for one in deliveries])) == "1" * 10


@pytest.mark.parametrize("times", [1, 2, 10])
def test_ack_whose_reply_is_lost_returns_true(executor, calls, proxy, claimed, times):
    proxy.drop_replies(times)
    assert executor.call(calls.ack(claimed)) == "1" * 10
    assert proxy.dropped == times
    assert executor.call(calls.counts()).meta["acked"] == "10"
    assert executor.call(calls.ack(claimed)) == "0" * 10


def test_nack_whose_reply_is_lost_uses_one_retry(executor, calls, proxy, claimed, redis_client):
    proxy.drop_replies(3)
    assert executor.call(calls.nack([Failure(*receipt, 1000, "boom") for receipt in claimed])) == "1" * 10
    assert set(redis_client.hvals(calls.keys.retries)) == {b"2"}


def test_round_trip_whose_replies_are_lost_executes_once(executor, calls, proxy, claimed, redis_client):
    executor.call(sending(calls, "next"))
    proxy.drop_replies(2)
    acked, promoted, taken = executor.run([calls.ack(claimed), calls.pending_to_ready(), claiming(calls, 5)])
    assert acked == "1" * 10
    assert promoted.moved == 1
    assert [one.id for one in taken.messages] == ["next"]
    assert redis_client.hget(calls.keys.meta, "delivered") == b"11"


def test_connection_cut_between_calls_is_opened_again(executor, calls, proxy):
    executor.call(sending(calls, "a"))
    proxy.cut()
    assert executor.call(sending(calls, "b")) == "1"
    assert proxy.connections == 2


def test_missing_scripts_execute_once_when_replies_are_lost(executor, calls, proxy, redis_client):
    redis_client.script_flush()
    proxy.drop_replies(2)
    assert executor.run([sending(calls, "a"), sending(calls, "b")]) == ["1", "1"]
    assert redis_client.hlen(calls.keys.messages) == 2


def test_request_that_arrives_after_its_repetition_changes_nothing(open_executor, proxy, calls, redis_client):
    executor = open_executor(proxy.url, socket_timeout="100ms")
    executor.call(sending(calls, "a"))
    proxy.freeze()  # the request is delayed in the first connection and sent again in a second one
    assert executor.call(calls.cancel(["a"])) == "1"
    assert executor.call(sending(calls, "a")) == "1"
    executed = scripts_run(redis_client)
    proxy.thaw()
    wait_until(lambda: scripts_run(redis_client) > executed)
    assert redis_client.hgetall(calls.keys.messages) == {b"a": b"1"}


def test_calls_execute_once_when_replies_are_lost_at_random(executor, calls, proxy, redis_client):
    chance = random.Random(5)
    acked = 0
    for round_ in range(40):
        if chance.random() < 0.6:
            proxy.drop_replies(chance.randrange(1, 3))
        ids = [f"r{round_}-{n}" for n in range(5)]
        assert executor.call(sending(calls, *ids)) == "11111"
        _, taken = executor.run([calls.pending_to_ready(), claiming(calls, 5)])
        assert [one.id for one in taken.messages] == ids
        acked += executor.call(calls.ack([Receipt(one.id, one.token) for one in taken.messages])).count("1")
    assert acked == 200
    assert proxy.dropped > 20
    assert redis_client.hmget(calls.keys.meta, "sent", "delivered", "acked") == [b"200"] * 3
    assert not redis_client.exists(calls.keys.messages, calls.keys.unack, calls.keys.deliveries)


def test_concurrent_calls_do_not_mix_up_their_replies(executor, calls, proxy, redis_client):
    executor.call(calls.purge())
    proxy.drop_replies(15)
    batches = [[sending(calls, *(f"b{b}-{n}" for n in range(b)))] for b in range(1, 31)]
    assert executor.run_together(*batches) == [["1" * b] for b in range(1, 31)]
    assert redis_client.hlen(calls.keys.messages) == sum(range(1, 31))


@pytest.mark.parametrize("idle", [1, 8])
def test_silent_connection_is_replaced_after_its_timeout(open_executor, proxy, calls, idle):
    executor = open_executor(proxy.url, socket_timeout="300ms")
    executor.run_together(*([calls.await_wake(0.1)] for _ in range(idle)))
    assert proxy.connections >= idle
    proxy.freeze()
    began = time.monotonic()
    assert executor.call(sending(calls, "a")) == "1"
    assert 0.3 <= time.monotonic() - began < 10


def test_call_retried_during_an_outage_succeeds_once_the_network_is_back(open_executor, proxy, calls):
    executor = open_executor(proxy.url, socket_timeout="100ms")
    executor.call(sending(calls, "a"))
    proxy.darken()
    tries = iter([True, True, True])

    def should_retry(_):
        if next(tries, None) is None:
            proxy.lighten()
        return True

    assert executor.run([sending(calls, "b")], should_retry=should_retry) == ["1"]
