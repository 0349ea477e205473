"""A server that closes the connection of a client whose replies are too large: less is asked for at a time."""

from __future__ import annotations

import pytest
import redis

from delayq import DelayQueue, NewMessage
from delayq.errors import UnavailableError
from delayq.streams import StreamQueue
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_until

pytestmark = pytest.mark.faults


@pytest.fixture(scope="module")
def url():
    with RedisServer("--client-output-buffer-limit", "normal 1048576 0 0") as server:
        yield server.url


@pytest.mark.parametrize("kind", [DelayQueue, StreamQueue])
def test_claim_whose_reply_is_too_large_is_made_again_for_less(url, kind, caplog):
    done = []
    with kind(
        f"many-{kind.__name__}", url=url, concurrency=4, callback=lambda message: done.append(message.id)
    ) as queue:
        queue.send_many(["x" * 400_000] * 5, retries=0)
        consuming = queue.start_consume()
        wait_until(lambda: len(done) == 5)
        consuming.stop()
        consuming.wait()
        assert (queue.counts().living, queue.counts().dead) == (0, 0)
    assert "262,144 bytes of payloads at a time; is client-output-buffer-limit too small?" in caplog.text


@pytest.mark.parametrize("kind", [DelayQueue, StreamQueue])
def test_payload_just_below_the_limit_is_sent_in_pieces(url, kind):
    done = []
    with kind(f"close-{kind.__name__}", url=url, callback=lambda message: done.append(len(message.payload))) as queue:
        queue.send_many(["x" * 1_000_000] * 3, retries=0)
        if kind is DelayQueue:
            assert len(queue.get(queue.list("ready").messages[0].id).payload) == 1_000_000
        queue.start_consume()
        wait_until(lambda: done == [1_000_000] * 3 and not queue.counts().living)
        assert not queue.counts().dead


@pytest.mark.long
def test_reply_that_cannot_be_sent_at_all_is_named(url, caplog):
    with DelayQueue("whole", url=url, max_payload=4_000_000, deadline="1s") as queue:
        queue.send_delay_msg("x" * 2_000_000, id="large", delay=60)
        with pytest.raises(UnavailableError, match="client-output-buffer-limit is too small for the reply"):
            queue.get("large")
    assert caplog.text.count("asking for no large payload") == 1


@pytest.mark.parametrize("kind", [DelayQueue, StreamQueue])
def test_message_that_is_too_large_by_itself_is_named_and_blocks_no_other(url, kind, caplog):
    done = []
    name = f"large-{kind.__name__}"
    with kind(name, url=url, max_payload=4_000_000, callback=lambda message: done.append(message.id)) as queue:
        queue.send_many([NewMessage("x" * 2_000_000, id="large", retries=0)])
        queue.send_many([NewMessage("small", id=id) for id in "abc"])
        queue.start_consume()
        wait_until(lambda: len(done) == 3 and queue.counts().dead and not queue.counts().living)
    assert "message large failed at attempt 1" in caplog.text
    assert "the payload of 2,000,002 bytes: is its client-output-buffer-limit too small for this?" in caplog.text


@pytest.mark.parametrize(
    "fields",
    [
        {"payload": "1", **{f"field-{n}": "x" * 60_000 for n in range(40)}},
        {"n" * 2_000_000: "1"},
        {f"field-{n}": "x" * 20 for n in range(60_000)},
    ],
    ids=["many-large-fields", "large-name", "very-many-fields"],
)
def test_entry_of_another_client_that_cannot_be_sent_blocks_no_other(url, fields, request, caplog):
    done, name = [], request.node.callspec.id
    with StreamQueue(name, url=url, default_retries=0, callback=lambda message: done.append(message.id)) as queue:
        with redis.Redis.from_url(url) as client:
            client.xadd(name, {"id": "large", **fields})
        queue.send_many([NewMessage("small", id=id) for id in "abc"])
        queue.start_consume()
        wait_until(lambda: len(done) == 3 and queue.counts().dead and not queue.counts().living)
    assert "message large failed at attempt 1" in caplog.text
    assert "is its client-output-buffer-limit too small for this?" in caplog.text
