"""A server that closes the connection of a client whose replies are too large: less is asked for at a time."""

from __future__ import annotations

import pytest

from delayq import DelayQueue, NewMessage
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


def test_message_that_is_too_large_by_itself_is_named_and_blocks_no_other(url, caplog):
    done = []
    with DelayQueue("large", url=url, max_payload=4_000_000, callback=lambda message: done.append(message.id)) as queue:
        queue.send_delay_msg("x" * 2_000_000, id="large", retries=0)
        queue.send_many([NewMessage("small", id=id) for id in "abc"])
        queue.start_consume()
        wait_until(lambda: len(done) == 3 and queue.counts().dead and not queue.counts().living)
    assert "message large failed at attempt 1" in caplog.text
    assert "the payload of 2,000,002 bytes: is its client-output-buffer-limit too small for this?" in caplog.text
