"""The metrics of queues are read from Redis, without any worker."""

from __future__ import annotations

import pytest
import redis
from prometheus_client import CollectorRegistry, generate_latest, parser
from prometheus_client.openmetrics import exposition
from prometheus_client.openmetrics import parser as openmetrics_parser

from delayq import ConfigurationError, DelayQueue, State, UnavailableError
from delayq.broker.keys import Keys
from delayq.broker.transport.executor import open_executor
from delayq.cli.admin.acl import Role, rules
from delayq.metrics import QueueCollector
from delayq.metrics.process_metrics import ProcessMetrics
from delayq.metrics.queue_collector import TOTALS, read_figures
from delayq.options import read_settings
from delayq.queue.inspecting.readings import READ_TOGETHER
from tests.metrics.samples import samples_of
from tests.support.faulty_proxy import FaultyProxy


@pytest.fixture
def collector(redis_url):
    made = QueueCollector(url=redis_url)
    yield made
    made.close()


@pytest.fixture
def queue(redis_url):
    with DelayQueue("orders", url=redis_url) as made:
        yield made


def drain(queue, function=lambda message: None):
    queue.callback(function)
    queue.run(burst=True)


def test_states_and_totals(collector, queue):
    queue.send_many(["a", "b", "c"])
    queue.send_delay_msg("later", "1h", id="x")
    queue.cancel("x")
    queue.send_delay_msg("later", "1h")
    with queue.lease():
        found = samples_of(collector)
    assert found['delayq_messages{queue="orders",state="pending"}'] == 1
    assert found['delayq_messages{queue="orders",state="ready"}'] == 2
    assert found['delayq_messages{queue="orders",state="active"}'] == 1
    assert {state for state in State if f'delayq_messages{{queue="orders",state="{state}"}}' in found} == {*State}
    assert found['delayq_messages_overdue{queue="orders"}'] == 2
    assert 0 <= found['delayq_queue_lag_seconds{queue="orders"}'] < 60
    assert found['delayq_unconsumed{queue="orders"}'] == found['delayq_queue_paused{queue="orders"}'] == 0
    after = samples_of(collector)
    totals = {kind: after[f'delayq_messages_{kind}_total{{queue="orders"}}'] for kind in TOTALS}
    assert {kind: number for kind, number in totals.items() if number} == {
        "sent": 5, "delivered": 1, "acked": 1, "cancelled": 1,
    }  # fmt: skip
    assert set(queue.stats().totals) <= set(TOTALS)


def test_messages_that_become_due_within_a_time(collector, queue):
    for delay in ("0s", "30s", "4m", "14m", "1h"):
        queue.send_delay_msg(1, delay)
    found = samples_of(collector)
    assert [found[f'delayq_messages_due{{queue="orders",within="{time}"}}'] for time in ("1m", "5m", "15m")] == [
        1,
        2,
        3,
    ]


def test_lateness_is_an_exact_histogram_that_outlives_its_hours(collector, queue, redis_client):
    queue.send_many([1, 2])
    drain(queue)
    keys = Keys.of("delayq", "orders")
    for hour in set(redis_client.hkeys(keys.history)) - {b"total"}:
        redis_client.hdel(keys.history, hour)
    queue.send_many([3])
    queue.run(burst=True)
    found = samples_of(collector)
    buckets = [value for name, value in found.items() if name.startswith("delayq_message_lateness_seconds_bucket")]
    assert buckets == sorted(buckets)
    assert buckets[-1] == 3
    assert found['delayq_message_lateness_seconds_bucket{le="3600.0",queue="orders"}'] == 3
    assert found['delayq_callbacks_total{queue="orders"}'] == 3
    assert found['delayq_callback_seconds_total{queue="orders"}'] > 0


def test_reference_parsers_read_everything_that_is_exported(collector, queue, redis_url, tmp_path):
    with DelayQueue("limited", url=redis_url, lateness_slo="99% within 1h") as limited:
        limited.send_delay_msg(1)
    queue.send_many([1, 2, 3])
    drain(queue)
    for one in (collector, ProcessMetrics(tmp_path)):
        registry = CollectorRegistry()
        registry.register(one)
        text, openmetrics = generate_latest(registry).decode(), exposition.generate_latest(registry).decode()
        names = [family.name for family in openmetrics_parser.text_string_to_metric_families(openmetrics)]
        assert len(names) == len(set(names)) == len({family.name for family in registry.collect()})
        assert len([*parser.text_string_to_metric_families(text)]) == len(names)


def test_objective(collector, redis_url):
    with DelayQueue("orders", url=redis_url, lateness_slo="99% within 1h") as queue:
        queue.send_delay_msg(1)
        before = samples_of(collector)
        drain(queue)
    assert 'delayq_slo_kept_ratio{queue="orders"}' not in before
    found = samples_of(collector)
    named = {name.partition("{")[0]: value for name, value in found.items() if name.startswith("delayq_slo")}
    assert named == {
        "delayq_slo_objective_ratio": 0.99,
        "delayq_slo_within_seconds": 3600,
        "delayq_slo_kept_ratio": 1,
        "delayq_slo_error_budget_left_ratio": 1,
    }


def test_queues_appear_and_vanish(redis_url, redis_client):
    some = {name: DelayQueue(name, url=redis_url) for name in ("tenant-1", "tenant-2", "other")}
    everything, tenants = QueueCollector(url=redis_url), QueueCollector(url=redis_url, pattern="tenant-[!2]")
    named = QueueCollector("other", "tenant-2", "tenant-2", url=redis_url)

    def queues(collector):
        return {name for name in some if f'delayq_queue_up{{queue="{name}"}}' in samples_of(collector)}

    assert queues(everything) == queues(named) == set()
    for queue in some.values():
        queue.send_delay_msg(1)
    assert queues(everything) == {*some}
    assert queues(tenants) == {"tenant-1"}
    assert queues(named) == {"other", "tenant-2"}
    redis_client.sadd("delayq:queues", "unmade", b"\xff")
    assert queues(everything) == {*some}
    assert not [name for name in samples_of(everything) if "unmade" in name]
    some["other"].purge()
    some["other"].remove()
    assert queues(everything) == {"tenant-1", "tenant-2"}
    assert queues(named) == {"tenant-2"}
    for one in (everything, tenants, named, *some.values()):
        one.close()


def test_queue_that_redis_refuses_to_read(collector, redis_url, redis_client):
    for name in ("broken", "fine"):
        with DelayQueue(name, url=redis_url) as queue:
            queue.send_delay_msg(1)
    redis_client.set("delayq:{broken}:dead", "a string")
    found = samples_of(collector)
    assert (found['delayq_queue_up{queue="broken"}'], found['delayq_queue_up{queue="fine"}']) == (0, 1)
    assert 'delayq_workers{queue="broken"}' not in found
    assert found['delayq_messages{queue="fine",state="ready"}'] == 1


def test_cost_does_not_depend_on_the_number_of_messages(collector, queue, redis_client):
    def commands():
        return redis_client.info("stats")["total_commands_processed"]

    def cost():
        before = commands()
        samples_of(collector)
        return commands() - before

    queue.send_many([1, 2], "1m")
    queue.send_delay_msg(1)
    samples_of(collector)
    few = cost()
    queue.send_many(range(3000), "1m")
    queue.send_many(range(3000))
    assert cost() == few < 60


def test_a_scrape_of_many_queues_takes_few_round_trips_and_asks_for_no_more_than_is_there(redis_url, monkeypatch):
    with DelayQueue("later", url=redis_url) as later, DelayQueue("empty", url=redis_url) as empty:
        later.send_delay_msg(1, "2m")
        empty.open()
    names = ["later", "empty", *(f"other-{n}" for n in range(2 * READ_TOGETHER))]
    executor = open_executor({"url": redis_url}, read_settings({}))
    asked = []
    run = executor.run
    monkeypatch.setattr(executor, "run", lambda requests: asked.append(list(requests)) or run(asked[-1]))
    found = read_figures(executor, "delayq", names)
    executor.close()
    assert {name: one.due for name, one in found.items()} == {
        "later": {"1m": 0, "5m": 1, "15m": 1},
        "empty": {"1m": 0, "5m": 0, "15m": 0},
    }
    assert [len(requests) for requests in asked] == [2 * READ_TOGETHER, 2 * READ_TOGETHER + 2, 4]


def test_a_scrape_fails_while_redis_is_away_and_goes_on_later(redis_url, queue):
    queue.send_delay_msg(1)
    with FaultyProxy(redis_url) as proxy:
        collector = QueueCollector(url=proxy.url, deadline="200ms", socket_timeout="100ms")
        assert (collector.unready(), samples_of(collector)['delayq_queue_up{queue="orders"}']) == ("", 1)
        proxy.darken()
        with pytest.raises(UnavailableError):
            samples_of(collector)
        assert "Redis" in collector.unready()
        proxy.lighten()
        assert samples_of(collector)['delayq_queue_up{queue="orders"}'] == 1
        collector.close()


def test_it_works_in_a_registry_of_prometheus_client(redis_url, queue):
    queue.send_delay_msg(1, "1h")
    away = QueueCollector(url="redis://:secret@127.0.0.1:1", deadline="100ms")
    CollectorRegistry().register(away)  # asks no Redis
    with pytest.raises(UnavailableError) as caught:
        samples_of(away)
    assert "secret" not in f"{caught.value!r} {away!r}"
    registry = CollectorRegistry()
    registry.register(QueueCollector("orders", url=redis_url))
    assert b'delayq_messages{queue="orders",state="pending"} 1.0\n' in generate_latest(registry)


def test_the_rights_of_an_inspector_are_enough(redis_url, redis_client, queue):
    queue.send_delay_msg(1)
    drain(queue)
    queue.preload()
    redis_client.execute_command("ACL", "SETUSER", "eye", "on", ">secret", *rules([Role.INSPECTOR]))
    try:
        with redis.Redis.from_url(redis_url, username="eye", password="secret") as client:
            collector = QueueCollector(redis=client)
            assert samples_of(collector)['delayq_message_lateness_seconds_bucket{le="+Inf",queue="orders"}'] == 1
            assert collector.unready() == ""
    finally:
        redis_client.execute_command("ACL", "DELUSER", "eye")


@pytest.mark.parametrize("wrong", ["a b", "", 7])
def test_wrong_names_and_patterns_are_refused(wrong):
    with pytest.raises(ConfigurationError):
        QueueCollector(wrong)
    with pytest.raises(ConfigurationError):
        QueueCollector(pattern=wrong)
