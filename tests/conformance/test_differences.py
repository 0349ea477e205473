"""Declared features of engines work, other features are missing, and the table of the handbook agrees."""

import inspect
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from redis.crc import key_slot

import delayq
from delayq import ConfigurationError, DelayQueue, NewMessage, QueueInUseError, SendStatus, State
from delayq.broker.engine import DELAY, STREAMS, WORKQUEUE, Feature
from delayq.broker.keys import Keys
from delayq.streams import StreamQueue
from delayq.streams.keys import StreamKeys
from delayq.workqueue.keys import KeyPrefix, WorkQueueKeys
from tests.conformance.engines import ENGINES, LONG, NAME, SHORT, Delay, Work, embedded_url
from tests.support.processes import Process
from tests.support.waiting import wait_until

PAGE = Path(delayq.__file__).parent / "docs" / "engines.md"


def table() -> dict[str, dict[str, str]]:
    """Return the rows of the table of features: a cell an engine."""
    found = re.search(r"^\| feature \| (.*) \|\n\|[-|]+\|\n((?:\|.*\n)+)", PAGE.read_text(), re.MULTILINE)
    engines = found[1].split(" | ")
    rows = [[cell.strip() for cell in row.strip("|").split(" | ")] for row in found[2].splitlines()]
    return {name: dict(zip(engines, cells, strict=True)) for name, *cells in rows}


@pytest.fixture
def url(redis_url):
    """A real Redis: the differences are the same on the embedded one."""
    return redis_url


def lacks(worker, *names):
    """Assert that a queue has none of these: there is no such name, or it is refused."""
    for name in names:
        with pytest.raises((AttributeError, ConfigurationError), match="has no"):
            getattr(worker.queue, name)("1h")


def takes_no(function, *options):
    """Assert that a function has none of these options."""
    assert not set(options) & set(inspect.signature(function).parameters)


def sending(worker):
    """Return the method that sends messages."""
    return worker.queue.add_item if hasattr(worker.queue, "add_item") else worker.queue.send_many


def has_delays(worker):
    worker.do(lambda: worker.queue.send_delay_msg(b"", "1h"))
    assert worker.take() is None
    assert worker.counts() == (1, 0)


def has_no_delays(worker):
    lacks(worker, "send_delay_msg", "send_schedule_msg")
    takes_no(sending(worker), "delay", "at")
    if hasattr(worker.queue, "send_many"):
        with pytest.raises(ConfigurationError, match="no delays"):
            worker.do(lambda: worker.queue.send_many([NewMessage(b"", delay="1h")]))


def has_schedules(worker):
    schedules = worker.do(lambda: (worker.queue.schedules,))[0]
    assert worker.do(lambda: schedules.add("hourly", every="1h", payload=b"")) == "new"


def has_no_schedules(worker):
    lacks(worker, "cron", "every", "schedules")


def cancels(worker):
    worker.send(b"", id="7")
    assert worker.do(lambda: worker.queue.reschedule("7", "1h")) == "rescheduled"
    assert worker.do(lambda: worker.queue.cancel("7")) == "cancelled"


def kills(worker):
    worker.send(b"", id="7")
    assert worker.do(lambda: worker.queue.kill("7")) == "killed"
    assert worker.do(lambda: worker.queue.kill("7")) == "dead"


def edits(worker):
    worker.send(b"", id="7")
    assert worker.do(lambda: worker.queue.edit("7", payload=b"x")) == "edited"
    assert worker.take().payload == b"x"


def forgets(worker):
    worker.send(b"", id="7")
    assert worker.do(lambda: worker.queue.forget("7")).alive_ids == ("7",)


def replaces(worker):
    worker.do(lambda: worker.queue.send_many([NewMessage(b"old", delay="1h", id="7")]))
    (sent,) = worker.do(lambda: worker.queue.send_many([NewMessage(b"new", id="7")], replace=True))
    assert sent.status is SendStatus.REPLACED
    assert worker.take().payload == b"new"


def follows(worker):
    worker.do(lambda: worker.queue.send_many([NewMessage(b"old", id="7")]))
    running = worker.take()
    (sent,) = worker.do(lambda: worker.queue.send_many([NewMessage(b"new", id="7")], replace="after"))
    assert sent.status is SendStatus.AFTER
    assert running.ack()
    assert worker.take().payload == b"new"


def has_unique_ids(worker):
    assert worker.send(b"", id="7")
    assert not worker.send(b"", id="7")


def has_names(worker):
    worker.do(lambda: worker.queue.send_many([NewMessage(b"", name="n")]))
    assert worker.take().delivery.name == "n"


def has_no_names(worker):
    takes_no(sending(worker), "name")
    lacks(worker, "task", "on")
    if hasattr(worker.queue, "send_many"):
        with pytest.raises(ConfigurationError, match="has no names of messages"):
            worker.do(lambda: worker.queue.send_many([NewMessage(b"", name="n")]))


def expires(worker):
    worker.do(lambda: worker.queue.send_many([NewMessage(b"", id="m", expires="2h")]))
    found = worker.do(lambda: worker.queue.get("m"))
    assert found.expires - found.due == timedelta(hours=2)


def expires_not(worker):
    takes_no(sending(worker), "expires", "missed")
    if hasattr(worker.queue, "send_many"):
        with pytest.raises(ConfigurationError, match="has no expiry"):
            worker.do(lambda: worker.queue.send_many([NewMessage(b"", expires="2h")]))


def has_hours(worker):
    worker.do(lambda: worker.queue.send_many([NewMessage(b"", id="m", hours="00:00-24:00")]))
    assert worker.do(lambda: worker.queue.get("m")).hours == "00:00-24:00"
    assert worker.take().id == "m"


def has_no_hours(worker):
    takes_no(sending(worker), "hours", "tz")
    if hasattr(worker.queue, "send_many"):
        with pytest.raises(ConfigurationError, match="has no hours"):
            worker.do(lambda: worker.queue.send_many([NewMessage(b"", hours="08:00-21:00")]))


def has_priorities(worker):
    worker.do(lambda: worker.queue.send_many([NewMessage(b"low", priority=-1), NewMessage(b"high", priority=1)]))
    assert [worker.take().payload for _ in range(2)] == [b"high", b"low"]


def has_no_priorities(worker):
    takes_no(sending(worker), "priority")
    if hasattr(worker.queue, "send_many"):
        with pytest.raises(ConfigurationError, match="has no priorities"):
            worker.do(lambda: worker.queue.send_many([NewMessage(b"", priority=1)]))


def debounces(worker):
    for payload in (b"first", b"last"):
        worker.do(lambda payload=payload: worker.queue.send_delay_msg(payload, id="m", debounce="1h"))
    assert worker.do(lambda: worker.queue.get("m")).payload == b"last"


def collects(worker):
    for payload in (b"first", b"last"):
        worker.do(
            lambda payload=payload: worker.queue.send_delay_msg(payload, id="m", debounce="1h", at_most="2h", collect=2)
        )
    assert worker.take().payload == [b"first", b"last"]


def reserves_ids(worker):
    worker.do(lambda: worker.queue.send_many([NewMessage(b"", id="m", unique_for="1h")]))
    assert worker.take().ack()
    (again,) = worker.do(lambda: worker.queue.send_many([NewMessage(b"", id="m")]))
    assert again.status == "settled"


def reserves_no_ids(worker):
    takes_no(sending(worker), "unique_for", "unique_after")
    if hasattr(worker.queue, "send_many"):
        with pytest.raises(ConfigurationError, match="has no ids reserved for a time"):
            worker.do(lambda: worker.queue.send_many([NewMessage(b"", id="m", unique_for="1h")]))


def keeps_results(worker):
    worker.do(lambda: worker.queue.send_many([NewMessage(b"", id="m", retention="2h")]))
    worker.take().ack()
    assert worker.do(lambda: worker.queue.result("m", timeout=0)) is None
    assert worker.do(lambda: worker.queue.get("m")).state == State.COMPLETED


def keeps_no_results(worker):
    takes_no(sending(worker), "retention")
    lacks(worker, "result")
    if hasattr(worker.queue, "send_many"):
        with pytest.raises(ConfigurationError, match="has no results"):
            worker.do(lambda: worker.queue.send_many([NewMessage(b"", retention="2h")]))


def limits_callbacks(worker):
    worker.do(lambda: worker.queue.send_many([NewMessage(b"", id="m", timeout="2s")]))
    assert worker.do(lambda: worker.queue.get("m")).timeout == 2.0


def limits_callbacks_not(worker):
    takes_no(sending(worker), "timeout")
    if hasattr(worker.queue, "send_many"):
        with pytest.raises(ConfigurationError, match="has no timeouts of messages"):
            worker.do(lambda: worker.queue.send_many([NewMessage(b"", timeout="2s")]))


def has_headers(worker):
    worker.do(lambda: worker.queue.send_many([NewMessage(b"", headers={"trace": "1"})]))
    assert worker.take().delivery.headers == {"trace": "1"}


def has_no_headers(worker):
    worker.send(b"")
    assert not hasattr(worker.take().delivery, "headers")


def waits(worker):
    assert worker.take(block=0.01) is None
    worker.send(b"")
    assert worker.take(block=5)


def takes_several(worker):
    worker.send_many([b"a", b"b", b"c"])
    assert len(list(worker.do(lambda: worker.queue.lease(LONG, n=2)))) == 2


def has_short_leases(worker):
    worker.send(b"")
    lost = worker.take(SHORT)
    found = []

    def again():
        worker.recover()
        found.append(worker.take())
        return found[-1]

    wait_until(again)
    assert found[-1].id == lost.id


def extends(worker):
    worker.send(b"")
    taken = worker.take(SHORT)
    assert taken.delivery.extend(LONG)
    worker.send(b"lost")
    worker.take(SHORT)
    again = []
    wait_until(lambda: again.append(worker.take()) or again[-1])  # which was leased later, and as shortly
    assert again[-1].payload == b"lost"
    assert taken.ack()


def extends_nothing(worker):
    worker.send(b"")
    lacks(worker, "extend")
    assert not hasattr(worker.take().delivery, "extend")


def recovers(worker):
    worker.send(b"")
    lost = worker.take(SHORT)
    again = []
    wait_until(lambda: again.append(worker.take()) or again[-1])
    assert again[-1].id == lost.id


def has_to_be_cleaned(worker, redis_client):
    worker.send(b"", id="7")
    worker.take(SHORT)
    wait_until(lambda: not redis_client.exists(f"{NAME}:lease:7"))
    assert worker.take() is None
    worker.recover()
    assert worker.take().id == "7"


def counts_retries(worker):
    worker.do(lambda: worker.queue.send_many([NewMessage(b"", retries=1)]))
    first = worker.take().delivery
    assert (first.attempt, first.retries_left) == (1, 1)
    assert first.nack(delay=0)
    second = worker.take(block=5).delivery
    assert (second.attempt, second.retries_left) == (2, 0)
    assert second.nack()
    assert worker.counts() == (0, 0)
    assert worker.do(worker.queue.counts).dead == 1


def counts_no_retries(worker):
    worker.send(b"")
    delivery = worker.take().delivery
    assert not any(hasattr(delivery, name) for name in ("attempt", "retries_left", "nack", "release"))
    lacks(worker, "nack")


KILLED = """
import sys
from delayq import DelayQueue
from delayq.streams import StreamQueue

url, kind, name = sys.argv[1:]
queue = {"delay": DelayQueue, "streams": StreamQueue}[kind](name, url=url, codec="bytes", lease=1, prefetch=1)

@queue.callback
def work(message):
    print(message.id, flush=True)
    sys.stdin.readline()

queue.run()
"""


def redelivered_after_a_kill(worker, redis_url, kind, *, reported):
    """Kill a consumer that has two messages and has started one; return attempts and retries left by id."""
    worker.do(lambda: worker.queue.send_many([NewMessage(b"", retries=2, id=id) for id in "ab"]))
    command = [sys.executable, "-c", KILLED, redis_url, kind, NAME]
    with Process(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "a\n"
        wait_until(lambda: worker.counts() == (0, 2))
        wait_until(reported)
        process.kill()
    taken = []
    with {"delay": DelayQueue, "streams": StreamQueue}[kind](NAME, url=redis_url, codec="bytes", lease=1) as queue:
        wait_until(lambda: taken.extend(queue.lease(LONG if kind == "delay" else 1, n=2)) or len(taken) == 2)
    return {message.id: (message.attempt, message.retries_left) for message in taken}


def charges_started_messages_only(worker, redis_url, redis_client):
    def reported_by_record():
        return redis_client.hget(Keys.of("delayq", NAME).deliveries, "a").endswith(b"+")

    def reported_by_consumer():
        rows = redis_client.xpending_range(NAME, "workers", "-", "+", 10)
        return [row["consumer"].endswith(b" ?") for row in rows] == [False, True]

    kind, reported = ("delay", reported_by_record) if isinstance(worker, Delay) else ("streams", reported_by_consumer)
    found = redelivered_after_a_kill(worker, redis_url, kind, reported=reported)
    assert found == {"a": (2, 1), "b": (1, 2)}


def has_a_dead_letter(worker):
    worker.send(b"", id="7")
    assert worker.take().delivery.reject("wrong")
    (dead,) = worker.do(lambda: (worker.queue.dead,))
    (message,) = worker.do(dead.list).messages
    assert (message.id, message.reason) == ("7", "wrong")
    assert worker.do(lambda: dead.redrive(all=True)).redriven == 1
    assert worker.take().id == "7"


def consumes(worker):
    seen = []
    consuming = worker.consume(lambda message: seen.append(message.payload))
    worker.send_many([b"a", b"b"])
    wait_until(lambda: worker.counts() == (0, 0) and len(seen) == 2)
    assert worker.do(worker.queue.stop_consume)
    assert not consuming.running
    worker.send(b"after the stop")
    assert worker.take().payload == b"after the stop"
    assert sorted(seen) == [b"a", b"b"]


def stops_draining(worker):
    """A stop waits for running callbacks and returns prefetched messages as if they had never been delivered."""
    begun, go, seen = threading.Event(), threading.Event(), []

    def work(message):
        begun.set()
        assert go.wait(20)
        seen.append(message.payload)

    worker.send_many([b"%d" % n for n in range(10)])
    consuming = worker.consume(work)
    assert begun.wait(20)
    consuming.stop()
    go.set()
    assert consuming.wait(20)
    left = []
    while taken := worker.take():
        assert taken.delivery.attempt == 1
        left.append(taken.payload)
    assert left
    assert sorted(seen + left) == [b"%d" % n for n in range(10)]


def consumes_batches(worker):
    seen = []
    worker.send_many([b"a", b"b", b"c"])

    def batch(messages):
        seen.append(sorted(message.payload for message in messages))

    worker.queue.batch_callback(worker.face.adapt(batch) if hasattr(worker.face, "adapt") else batch, most=10)
    worker.do(worker.queue.start_consume)
    wait_until(lambda: worker.counts() == (0, 0) and seen)
    assert worker.do(worker.queue.stop_consume)
    assert seen == [[b"a", b"b", b"c"]]


def counts(worker):
    worker.send_many([b"", b""])
    worker.take()
    assert worker.counts() == (1, 1)


def lists_workers(worker):
    worker.consume(lambda message: None)
    wait_until(lambda: worker.do(worker.queue.workers))
    (one,) = worker.do(worker.queue.workers)
    assert (one.state, one.held) == ("working", 0)
    assert worker.do(worker.queue.stop_consume)
    assert worker.do(worker.queue.workers) == []


def has_a_history(worker):
    worker.send(b"payload", id="7")
    worker.consume(lambda message: None)
    wait_until(lambda: worker.do(worker.queue.stats).totals.get("acked") == 1)
    assert worker.do(worker.queue.stop_consume)
    total = worker.do(worker.queue.history).total
    assert (total.delivered, total.acked) == (1, 1)


def searches(worker):
    worker.send_many([b"a needle", b"hay"])
    page = worker.do(lambda: worker.queue.search("needle"))
    assert ([match.where for match in page.matches], page.searched) == ([("payload",)], 2)


def reads_one(worker):
    worker.send(b"payload", id="7")
    if hasattr(worker.queue, "get_item_data"):
        assert worker.do(lambda: worker.queue.get_item_data(worker.db, "7")) == b"payload"
    else:
        assert worker.do(lambda: worker.queue.get("7")).payload == b"payload"


def lists(worker):
    worker.send_many([b"a", b"b"])
    if isinstance(worker, Work):
        assert len(worker.do(lambda: worker.queue.list(worker.db, "queued")).items) == 2
        return
    pages = [worker.do(lambda state=state: worker.queue.list(state)) for state in ("ready", "dead")]
    if isinstance(worker, Delay):  # where what was sent is first of all pending
        pages.append(worker.do(lambda: worker.queue.list("pending")))
    assert sum(len(page.messages) for page in pages) == 2


def refuses_options(worker, **options):
    with pytest.raises((ConfigurationError, TypeError)):
        type(worker)(worker.face, worker.url, **options)


def has_groups(worker):
    worker.send(b"a")
    other = type(worker)(worker.face, worker.url, group="others")
    assert worker.take().payload == other.take().payload == b"a"
    other.close()


def purges(worker):
    worker.send_many([b"a", b"b"])
    assert worker.do(worker.queue.purge) == 2
    assert worker.counts() == (0, 0)


def removes(worker):
    worker.send(b"a")
    with pytest.raises(QueueInUseError):
        worker.do(worker.queue.remove)
    assert worker.do(worker.queue.purge) == 1
    assert worker.do(worker.queue.remove) is True


def limits_starts(worker):
    worker.do(partial(worker.queue.limits.set, running=1))
    worker.send(b"a")
    worker.send(b"b")
    first = worker.take()
    assert worker.take() is None
    assert first.ack()
    assert worker.take().ack()
    assert worker.do(worker.queue.limits.remove)


def says_why(worker):
    worker.send(b"a")
    (reason,) = worker.do(worker.queue.why).reasons
    assert reason.kind == "nobody"


def pauses(worker):
    worker.send(b"a")
    worker.do(worker.queue.pause)
    assert worker.take() is None
    assert worker.do(worker.queue.resume)
    assert worker.take().ack()


def repairs(worker):
    worker.send(b"a")
    assert worker.do(worker.queue.repair).queue == NAME


def logs_events(worker):
    logging = type(worker)(worker.face, worker.url, events=True)
    logging.send(b"")
    assert [event.kind for event in logging.do(logging.queue.events)] == ["sent"]
    logging.close()


def logs_no_events(worker):
    lacks(worker, "events")
    refuses_options(worker, events=True)


def keeps_runs(worker):
    worker.do(lambda: worker.queue.send_many([b""], run="nightly"))
    assert worker.do(lambda: worker.queue.end_run("nightly")).new == 1


def keeps_no_runs(worker):
    lacks(worker, "runs", "end_run")
    takes_no(sending(worker), "run")


def dedupes(worker):
    window = type(worker)(worker.face, worker.url, dedupe_window="1h")
    assert window.send(b"", id="7")
    assert window.take().ack()
    assert not window.send(b"", id="7")
    window.close()


def dedupes_nothing(worker):
    refuses_options(worker, dedupe_window="1h")
    worker.send(b"", id="7")
    worker.take().ack()
    assert worker.send(b"", id="7")


def has_options(worker):
    type(worker)(worker.face, worker.url, lease=5, default_retries=1).close()
    with pytest.raises(ConfigurationError, match="unknown option"):
        type(worker)(worker.face, worker.url, leese=5)


def hides_fields(worker):
    type(worker)(worker.face, worker.url, redact=["card.number"]).close()
    with pytest.raises(ConfigurationError, match="redact"):
        type(worker)(worker.face, worker.url, redact="card.number")


def is_embedded(worker):
    inside = type(worker)(worker.face, embedded_url())
    inside.send(b"")
    assert inside.take().ack()
    inside.close()


def is_for_clusters(worker):
    if isinstance(worker, Work):
        keys = WorkQueueKeys(KeyPrefix("{jobs}"))
        spelled = [keys.queue, keys.processing, keys.item(b"7"), keys.lease(b"7")]
        assert not WorkQueueKeys(KeyPrefix(NAME)).tagged
    else:
        keys = Keys.of("delayq", NAME) if isinstance(worker, Delay) else StreamKeys.of(NAME)
        spelled = [getattr(keys, part).encode() for part in keys.__dataclass_fields__]
    assert len({key_slot(key) for key in spelled}) == 1


class Check(NamedTuple):
    """Checks that an engine has a feature, or that it lacks it."""

    works: Callable[..., None]
    lacking: Callable[..., None] | None = None


def none_of(*names):
    return lambda worker: lacks(worker, *names)


CHECKS = {
    Feature.DELAYS: Check(has_delays, has_no_delays),
    Feature.SCHEDULES: Check(has_schedules, has_no_schedules),
    Feature.CANCEL: Check(cancels, none_of("cancel", "reschedule")),
    Feature.KILL: Check(kills, none_of("kill")),
    Feature.EDIT: Check(edits, none_of("edit")),
    Feature.FORGET: Check(forgets, none_of("forget")),
    Feature.REPLACE: Check(replaces, lambda worker: takes_no(sending(worker), "replace")),
    Feature.SUCCESSORS: Check(follows, lambda worker: takes_no(sending(worker), "replace")),
    Feature.UNIQUE_IDS: Check(has_unique_ids),
    Feature.HEADERS: Check(has_headers, has_no_headers),
    Feature.NAMES: Check(has_names, has_no_names),
    Feature.EXPIRY: Check(expires, expires_not),
    Feature.HOURS: Check(has_hours, has_no_hours),
    Feature.PRIORITIES: Check(has_priorities, has_no_priorities),
    Feature.DEBOUNCE: Check(debounces, lambda worker: takes_no(sending(worker), "debounce", "at_most")),
    Feature.COLLECT: Check(collects, lambda worker: takes_no(sending(worker), "collect")),
    Feature.RESERVED: Check(reserves_ids, reserves_no_ids),
    Feature.RESULTS: Check(keeps_results, keeps_no_results),
    Feature.TIMEOUTS: Check(limits_callbacks, limits_callbacks_not),
    Feature.BLOCKING_LEASES: Check(waits),
    Feature.LEASE_MANY: Check(takes_several, lambda worker: takes_no(worker.queue.lease, "n")),
    Feature.SHORT_LEASES: Check(has_short_leases),
    Feature.EXTEND: Check(extends, extends_nothing),
    Feature.RECOVERY: Check(recovers, has_to_be_cleaned),
    Feature.RETRIES: Check(counts_retries, counts_no_retries),
    Feature.START_REPORTS: Check(charges_started_messages_only, counts_no_retries),
    Feature.DEAD_LETTER: Check(has_a_dead_letter, none_of("dead", "reject")),
    Feature.GROUPS: Check(has_groups, lambda worker: refuses_options(worker, group="others")),
    Feature.CALLBACKS: Check(consumes, none_of("callback", "start_consume", "run")),
    Feature.DRAIN: Check(stops_draining, none_of("stop_consume")),
    Feature.BATCHES: Check(consumes_batches, none_of("batch_callback")),
    Feature.COUNTS: Check(counts),
    Feature.WORKERS: Check(lists_workers, none_of("workers")),
    Feature.HISTORY: Check(has_a_history, none_of("history")),
    Feature.GET: Check(reads_one),
    Feature.WHY: Check(says_why, none_of("why")),
    Feature.LIST: Check(lists),
    Feature.SEARCH: Check(searches, none_of("search")),
    Feature.PURGE: Check(purges, none_of("purge")),
    Feature.REMOVE: Check(removes, none_of("remove")),
    Feature.PAUSE: Check(pauses, none_of("pause", "resume")),
    Feature.LIMITS: Check(limits_starts, none_of("limits")),
    Feature.EVENTS: Check(logs_events, logs_no_events),
    Feature.RUNS: Check(keeps_runs, keeps_no_runs),
    Feature.DEDUPE: Check(dedupes, dedupes_nothing),
    Feature.OPTIONS: Check(has_options, lambda worker: refuses_options(worker, lease=5)),
    Feature.REDACTION: Check(hides_fields, lambda worker: refuses_options(worker, redact=["a"])),
    Feature.REPAIR: Check(repairs, none_of("repair")),
    Feature.EMBEDDED: Check(is_embedded),
    Feature.CLUSTER: Check(is_for_clusters),
}


OF_COMMANDS = {Feature.REGISTRY, Feature.REMINDERS, Feature.SPARK, Feature.EXPORT, Feature.COLD}
"""Features of other objects than queues; the tests of the command line try them with every engine."""


def test_table_has_all_features_and_engines():
    found = table()
    assert list(found) == list(Feature)
    assert set(CHECKS) | OF_COMMANDS == set(Feature)
    assert all(list(row) == list(ENGINES) for row in found.values())


@pytest.mark.parametrize("capabilities", [DELAY, STREAMS, WORKQUEUE], ids=lambda one: one.engine)
def test_table_matches_the_declared_features_of_an_engine(capabilities):
    said = {feature: row[capabilities.engine] for feature, row in table().items()}
    assert said == {feature: "yes" if capabilities.has(feature) else "no" for feature in Feature}


@pytest.mark.parametrize("kind", ["stream", "embedded"])
def test_only_a_delay_queue_on_a_server_has_a_cold_tier(kind, redis_url, tmp_path):
    pytest.importorskip("pyarrow")
    from delayq.bulk import move_cold

    with StreamQueue("tasks", url=redis_url) as stream:
        stream.send_many([NewMessage("m")])
    with pytest.raises(ConfigurationError, match="no cold tier" if kind == "embedded" else "there is no queue 'tasks'"):
        move_cold("tasks", tmp_path, url="memory://" if kind == "embedded" else redis_url)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("feature", CHECKS)
def test_declared_feature_works_and_other_features_are_missing(feature, engine, worker, redis_client, redis_url):
    works, lacking = CHECKS[feature]
    capabilities = {one.engine: one for one in (DELAY, STREAMS, WORKQUEUE)}[engine]
    check = works if capabilities.has(feature) else lacking
    fixtures = {"worker": worker, "redis_client": redis_client, "redis_url": redis_url}
    check(**{name: fixtures[name] for name in inspect.signature(check).parameters})
