"""Large payloads: one call moves about a mebibyte of them, and what the API promises is whole all the same."""

from __future__ import annotations

from contextlib import ExitStack

from delayq import DelayQueue, Reject
from delayq.testing import unreachable
from tests.behaviour.places import everywhere
from tests.support.waiting import wait_until

pytestmark = everywhere

LARGE = "x" * 700_000
IDS = [*"abcdef"]


def send_large(queue, **options):
    for id in IDS:
        queue.send_delay_msg(LARGE, id=id, **options)


def kill_all(queue):
    send_large(queue)
    for message in queue.lease("60s", n=6):
        message.reject("too large")


def test_lease_of_many_large_messages_claims_all_of_them(queue):
    send_large(queue)

    with queue.lease("60s", n=6) as messages:
        assert [(message.id, message.payload) for message in messages] == [(id, LARGE) for id in IDS]

    assert queue.stats().totals["acked"] == 6


def test_failed_lease_of_many_large_messages_leaves_all_of_them_in_the_dead_letter(queue):
    send_large(queue, retries=0)

    with queue.lease("60s", n=6) as messages:
        for message in messages:
            message.nack()

    wait_until(lambda: queue.lease().messages == [] and queue.counts().dead == 6)


def test_pages_of_large_messages_are_whole(queue):
    send_large(queue, delay=60)
    first = queue.list("pending", limit=4)
    rest = queue.list("pending", limit=4, cursor=first.cursor)
    assert [[(message.id, message.size) for message in page.messages] for page in (first, rest)] == [
        [(id, len(LARGE) + 2) for id in ids] for ids in ("abcd", "ef")
    ]
    assert rest.cursor is None


def test_large_dead_messages_are_listed_redriven_and_purged(queue):
    kill_all(queue)
    assert [message.id for message in queue.dead.list(limit=5).messages] == IDS[:5]

    assert queue.dead.redrive(reason="large").redriven == 6
    for message in queue.lease("60s", n=6):
        assert message.payload == LARGE
        message.reject("again")
    assert queue.dead.purge(all=True) == 6


def test_consumer_processes_and_rejects_large_messages(open_queue):
    seen = []

    def work(message):
        seen.append(message.id)
        raise Reject("too large")

    queue = open_queue(callback=work, concurrency=4)
    send_large(queue)
    queue.run(burst=True)
    assert (sorted(seen), queue.counts().dead) == (IDS, 6)


def test_examination_of_large_messages_is_complete(queue):
    send_large(queue, delay=60)
    assert {str(one.kind) for one in queue.examine(deep=True).findings} <= {"server"}


def test_lease_returns_what_it_has_claimed_if_redis_goes_away_meanwhile(url):
    class CutOff:
        """A codec that reads nothing before Redis is unreachable."""

        def encode(self, payload):
            return payload.encode()

        def decode(self, stored):
            outage.enter_context(unreachable(queue))
            return stored.decode()

    with DelayQueue("reminders", url=url, codec=CutOff()) as queue, ExitStack() as outage:
        send_large(queue)

        messages = queue.lease("60s", n=6)
        outage.close()

        assert [message.id for message in messages] == ["a", "b"]  # one call claims no more
        assert [message.ack() for message in messages] == [True, True]
