"""Encrypted payloads on a stream: delivered, read, refused on another stream, and passed on by a relay."""

from __future__ import annotations

from delayq import DelayQueue, Encrypted
from delayq.streams import Relay, StreamQueue

CODEC = Encrypted({"2026": bytes(range(32))})
CARD = {"number": "4111"}


def test_a_stream_delivers_and_reads_encrypted_payloads(open_queue):
    queue, seen = open_queue(codec=CODEC), []
    queue.send(CARD, id="m")
    queue.send_many([CARD])
    assert queue.get("m").payload == CARD
    queue.callback(lambda message: seen.append(message.payload))
    queue.run(burst=True)
    assert seen == [CARD, CARD]


def test_a_payload_that_was_moved_is_dead_and_comes_back_as_it_was(open_queue):
    queue, seen = open_queue(codec=CODEC), []
    open_queue(codec="bytes").send(CODEC.for_queue("other").encode(CARD), 0)
    queue.send(CARD)
    queue.callback(lambda message: seen.append(message.payload))
    queue.run(burst=True)
    assert seen == [CARD]
    (dead,) = queue.dead.list().messages
    assert dead.reason.startswith("undecodable: ")
    assert isinstance(dead.payload, bytes)
    assert queue.dead.redrive(all=True).redriven == 1


def test_an_entry_without_payload_is_no_message_where_payloads_are_encrypted(open_queue, redis_client):
    queue, seen = open_queue(codec=CODEC, nack_delay=0, default_retries=0), []
    redis_client.xadd(queue.name, {"id": "X"})
    queue.callback(seen.append)
    queue.run(burst=True)
    (dead,) = queue.dead.list().messages
    assert (seen, dead.id, dead.reason[:11]) == ([], "X", "undecodable")


def test_a_relay_passes_on_payloads_that_both_queues_seal_for_the_same_name(redis_url):
    codec, seen = Encrypted({"2026": bytes(range(32))}, name="cards"), []
    options = {"url": redis_url, "codec": codec}
    with DelayQueue("before", **options) as queue, StreamQueue("after", **options) as stream:
        queue.send_delay_msg(CARD)
        Relay(queue, stream).run(burst=True)
        stream.callback(lambda message: seen.append(message.payload))
        stream.run(burst=True)
    assert seen == [CARD]
