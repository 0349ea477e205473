"""`keep_errors="class"`: of an exception, its class name alone is stored, wherever errors are stored."""

from __future__ import annotations

import pytest
import redis

from delayq import Discard, MessageFailedError, Reject, Retry, UndecodableError
from delayq.streams import StreamQueue

SECRET = "s3cr3t"


class NoCustomer(Reject):
    """A reason of a program's own."""


class Odd:
    """A codec whose errors quote what they failed on."""

    def encode(self, payload):
        if payload == SECRET:
            raise ValueError(SECRET)
        return str(payload).encode()

    def decode(self, data):
        raise (UndecodableError(f"undecodable: {SECRET}") if data == b"known" else ValueError(SECRET))


def stored(url):
    """Return everything that Redis holds, as bytes."""
    with redis.Redis.from_url(url) as client:
        keys = list(client.scan_iter())
        texts = [repr(client.xrange(key)) for key in keys if client.type(key) == b"stream"]
        return b"".join(client.dump(key) for key in keys) + "".join(texts).encode()


def run(queue, raised, *, result=None):
    def work(message):
        if raised is not None:
            raise raised
        return result

    queue.callback(work)
    queue.run(burst=True)


@pytest.mark.parametrize(
    ("raised", "text"),
    [
        (ValueError(SECRET), "ValueError"),
        (Reject(SECRET), "Reject"),
        (NoCustomer(SECRET), "NoCustomer"),
        (Retry(SECRET), "Retry"),
    ],
    ids=["exception", "reject", "derived", "retry"],
)
def test_the_dead_letter_has_the_name_of_the_class_alone(open_queue, url, raised, text):
    queue = open_queue(keep_errors="class", events=True)
    queue.send_delay_msg(1, id="m", retries=0)
    run(queue, raised)
    (dead,) = queue.dead.list().messages
    assert text in (dead.reason, dead.error)
    assert text in [one for event in queue.events() for one in (event.reason, event.error)]
    assert SECRET.encode() not in stored(url)


def test_a_message_that_waits_for_its_retry_has_the_class_too(open_queue):
    queue = open_queue(keep_errors="class", nack_delay="1h")
    queue.send_delay_msg(1, id="m")
    run(queue, ValueError(SECRET))
    assert queue.get("m").error == "ValueError"


def test_results_have_no_text_of_an_error(open_queue, url):
    plain = open_queue("plain", keep_errors="class", retention="1h")
    plain.send_delay_msg(1, id="m")
    run(plain, Discard(SECRET))
    assert plain.get("m").reason == "Discard"
    unkept = open_queue("unkept", keep_errors="class", retention="1h")
    unkept.send_delay_msg(1, id="m")
    run(unkept, None, result=object())
    assert unkept.get("m").reason == "PayloadError"
    rejected = open_queue("rejected", keep_errors="class", retention="1h")
    rejected.send_delay_msg(1, id="m")
    run(rejected, Reject(SECRET))
    with pytest.raises(MessageFailedError) as error:
        rejected.result("m")
    assert error.value.reason == "Reject"
    assert SECRET.encode() not in stored(url)


@pytest.mark.parametrize("payload", ["known", "unknown"])
def test_an_undecodable_payload_is_that_and_no_more(open_queue, payload):
    queue = open_queue(keep_errors="class", codec=Odd())
    queue.send_delay_msg(payload, retries=0)
    run(queue, None)
    (dead,) = queue.dead.list().messages
    assert (dead.reason, dead.error) == ("undecodable", "")


def test_what_is_settled_by_hand_has_no_text(open_queue, url):
    queue = open_queue(keep_errors="class", nack_delay="1h")
    queue.send_many([1, 2])
    first, second = queue.lease(n=2)
    first.reject(SECRET)
    second.nack(error=SECRET)
    assert queue.dead.list().messages[0].reason == "rejected"
    queue.send_delay_msg(3, id="m")

    def fail():
        with queue.lease():
            raise ValueError(SECRET)

    with pytest.raises(ValueError, match=SECRET):
        fail()
    assert queue.get("m").error == "ValueError"
    assert SECRET.encode() not in stored(url)


def test_tasks_with_a_backoff_of_their_own_and_batches_have_it_too(open_queue, url):
    queue = open_queue(keep_errors="class")

    @queue.task(backoff=60)
    def fail():
        raise ValueError(SECRET)

    fail.options(retries=0).send()
    queue.run(burst=True)
    batch = open_queue("batch", keep_errors="class")
    batch.send_delay_msg(1, retries=0)
    batch.batch_callback(lambda messages: [ValueError(SECRET) for _ in messages])
    batch.run(burst=True)
    assert [one.dead.list().messages[0].error for one in (queue, batch)] == ["ValueError", "ValueError"]
    assert SECRET.encode() not in stored(url)


def test_what_no_function_takes_keeps_the_error_it_stands_for(open_queue):
    queue = open_queue(keep_errors="class", unknown_for=0)
    queue.send_delay_msg(1, name="nobody", retries=0)

    @queue.on("other")
    def other(message):
        """Take another name."""

    queue.run(burst=True)
    assert queue.dead.list().messages[0].reason == "NoCallbackError"


def test_streams_keep_the_class_too(url):
    with StreamQueue("tasks", url=url, keep_errors="class") as queue:
        queue.send(1, 0)
        run(queue, ValueError(SECRET))
        assert queue.dead.list().messages[0].error == "ValueError"
        assert SECRET.encode() not in stored(url)
