"""The table of the handbook: what it says an engine has is there and works, and what it has not is not."""

import inspect
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from redis.crc import key_slot

import delayq
from delayq import ConfigurationError, NewMessage, SendStatus
from delayq.keys import Keys
from delayq.streams.keys import StreamKeys
from delayq.workqueue.keys import KeyPrefix
from delayq.workqueue.keys import Keys as WorkKeys
from tests.conformance.engines import ENGINES, LONG, NAME, SHORT, Delay, Work, embedded_url
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
    """A real Redis is enough for what differs."""
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
    """Return what a queue sends with."""
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


def replaces(worker):
    worker.do(lambda: worker.queue.send_many([NewMessage(b"old", delay="1h", id="7")]))
    (sent,) = worker.do(lambda: worker.queue.send_many([NewMessage(b"new", id="7")], replace=True))
    assert sent.status is SendStatus.REPLACED
    assert worker.take().payload == b"new"


def has_unique_ids(worker):
    assert worker.send(b"", id="7")
    assert not worker.send(b"", id="7")


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

    wait_until(again, 5)
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


def has_a_dead_letter(worker):
    worker.send(b"", id="7")
    assert worker.take().delivery.reject("wrong")
    (dead,) = worker.do(lambda: (worker.queue.dead,))
    (message,) = worker.do(dead.list).messages
    assert (message.id, message.reason) == ("7", "wrong")
    assert worker.do(lambda: dead.redrive(everything=True)).redriven == 1
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
    """A stop waits for what runs, and gives back what has not started, as if it had never been delivered."""
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


def is_embedded(worker):
    inside = type(worker)(worker.face, embedded_url())
    inside.send(b"")
    assert inside.take().ack()
    inside.close()


def is_for_clusters(worker):
    if isinstance(worker, Work):
        keys = WorkKeys(KeyPrefix("{jobs}"))
        spelled = [keys.queue, keys.processing, keys.item(b"7"), keys.lease(b"7")]
        assert not WorkKeys(KeyPrefix(NAME)).tagged
    else:
        keys = Keys.of("delayq", NAME) if isinstance(worker, Delay) else StreamKeys.of(NAME)
        spelled = [getattr(keys, part).encode() for part in keys.__dataclass_fields__]
    assert len({key_slot(key) for key in spelled}) == 1


class Feature(NamedTuple):
    """How it is shown that an engine has something, and that it has not."""

    works: Callable[..., None]
    lacking: Callable[..., None] | None = None


def none_of(*names):
    return lambda worker: lacks(worker, *names)


FEATURES = {
    "delays and times": Feature(has_delays, has_no_delays),
    "schedules": Feature(has_schedules, has_no_schedules),
    "cancelling and rescheduling": Feature(cancels, none_of("cancel", "reschedule")),
    "replacing what waits": Feature(replaces, lambda worker: takes_no(sending(worker), "replace")),
    "ids that are unique": Feature(has_unique_ids),
    "headers": Feature(has_headers, has_no_headers),
    "waiting for a message": Feature(waits),
    "taking several at a time": Feature(takes_several, lambda worker: takes_no(worker.queue.lease, "n")),
    "leases of less than a second": Feature(has_short_leases),
    "extending a lease": Feature(extends, extends_nothing),
    "recovery by every worker": Feature(recovers, has_to_be_cleaned),
    "retries that are counted": Feature(counts_retries, counts_no_retries),
    "dead letter": Feature(has_a_dead_letter, none_of("dead", "reject")),
    "callback consumer": Feature(consumes, none_of("callback", "start_consume", "run")),
    "stop that drains": Feature(stops_draining, none_of("stop_consume")),
    "batches": Feature(consumes_batches, none_of("batch_callback")),
    "counts": Feature(counts),
    "reading a message by its id": Feature(reads_one),
    "listing messages": Feature(lists),
    "event log": Feature(logs_events, logs_no_events),
    "ledger of bulk sends": Feature(keeps_runs, keeps_no_runs),
    "dedupe window": Feature(dedupes, dedupes_nothing),
    "options of a queue": Feature(has_options, lambda worker: refuses_options(worker, lease=5)),
    "embedded, in a test": Feature(is_embedded),
    "Redis Cluster": Feature(is_for_clusters),
}


def test_the_table_is_of_these_features_and_engines():
    found = table()
    assert list(found) == list(FEATURES)
    assert all(list(row) == list(ENGINES) for row in found.values())
    assert {cell for row in found.values() for cell in row.values()} == {"yes", "no"}


@pytest.mark.parametrize("feature", FEATURES)
def test_a_cell_of_the_table_is_true(feature, engine, worker, redis_client):
    works, lacking = FEATURES[feature]
    check = works if table()[feature][engine] == "yes" else lacking
    wanted = {"worker": worker, "redis_client": redis_client}
    check(**{name: wanted[name] for name in inspect.signature(check).parameters})
