"""Large payloads: one call of a stream queue reads about a mebibyte of them; what the API promises is whole."""

from __future__ import annotations

import re
import time
from importlib.resources import files

import pytest

from delayq.broker.requests import Failure, Rejection
from delayq.broker.transport.executor import open_executor
from delayq.options import read_settings

LARGE = "x" * 600_000
LUA = files("delayq").joinpath("streams", "lua")
FILES = [path for folder in (LUA, LUA.joinpath("lib")) for path in folder.iterdir() if path.is_file()]
SOURCES = {path.name: path.read_text() for path in FILES}
ONE = {
    "get": "XRANGE', stream, '(' .. field(info, 'last-delivered-id'), entry)",
    "page": "XRANGE', key, '(' .. from, delivered, 'COUNT', 1)",
    "pel": "XRANGE', stream, '(' .. field(info, 'last-delivered-id'), '+', 'COUNT', 1)",
}
"""Reads of a single entry, or of none."""


@pytest.fixture
def run(queue):
    """Run a call beside the queue, whose own connection may belong to an event loop."""
    executor = open_executor({"url": queue._options["url"]}, read_settings({}))
    yield executor.call
    executor.close()


@pytest.mark.parametrize("name", SOURCES)
def test_entries_are_read_within_the_budget(name):
    if name == "entries.lua":
        return
    text = SOURCES[name].replace(ONE.get(name.removesuffix(".lua"), "nothing"), "")
    for read in re.finditer(r"redis\.call\('(XRANGE|XREVRANGE|XREADGROUP|XREAD|HGETALL|HVALS|HSCAN)', (\S+)", text):
        assert read[2] == "replies," or "each_entry(" in text[max(0, read.start() - 250) : read.start()], read[0]
    for read in re.finditer(r"redis\.call\('(XCLAIM|XAUTOCLAIM)'[^)]*", text):
        assert "JUSTID" in read[0] or "unpack(renewed" in read[0]  # the last of what it unpacks
    if "messages" in text.partition("Uses")[0] and "HGET" in text:  # the relay
        assert "redis.call('HGET', messages" not in text


def claim(queue, run):
    calls = queue.context.calls
    return run(calls.ready_to_unack(10, lease=queue.settings.lease, consumer_id=calls.consumer_id()))


def test_claim_reads_a_few_entries_and_says_that_more_wait(queue, run):
    queue.send_many([LARGE] * 8)
    sizes, left = [], 1
    while left:
        claimed = claim(queue, run)
        sizes, left = [*sizes, len(claimed.messages)], claimed.left
    assert sum(sizes) == 8
    assert max(sizes) <= 3


def test_claim_of_expired_leases_reads_a_few_entries(queue, run, server):
    queue.send_many([LARGE] * 8)
    assert len(queue.lease(n=8)) == 8
    entries = [entry for entry, _ in server.xrange("tasks")]
    server.xclaim("tasks", queue.group, "gone", 0, entries, idle=10 * queue.settings.lease, justid=True)
    sizes, left = [], 1
    while left:
        claimed = claim(queue, run)
        sizes, left = [*sizes, len(claimed.messages)], claimed.left
    assert (sum(sizes), max(sizes)) == (8, 2)


def test_lease_of_many_large_messages_is_whole(queue):
    queue.send_many([LARGE] * 8)
    with queue.lease(n=8) as messages:
        assert [message.payload for message in messages] == [LARGE] * 8


def test_nack_and_reject_process_a_few(queue, run):
    queue.send_many([LARGE] * 8)
    claimed = []
    while len(claimed) < 8:
        claimed += claim(queue, run).messages
    calls = queue.context.calls
    assert run(calls.nack([Failure(one.id, one.token, 0, "") for one in claimed[:4]])) == "11"
    assert run(calls.reject([Rejection(one.id, one.token, "no", "") for one in claimed[4:]])) == "11"


def test_dead_letter_of_large_messages_is_listed_redriven_and_purged(queue):
    queue.send_many([LARGE] * 6)
    for message in queue.lease(n=6).messages:
        message.reject("too large")
    first = queue.dead.list(limit=4)
    rest = queue.dead.list(limit=4, cursor=first.cursor)
    assert [message.payload for message in [*first.messages, *rest.messages]] == [LARGE] * 6
    assert (len(rest.messages), rest.cursor) == (2, None)
    assert queue.dead.redrive(all=True).redriven == 6
    for message in queue.lease(n=6).messages:
        message.reject("again")
    assert queue.dead.purge(all=True) == 6


def test_prune_reads_a_few_entries(queue, run):
    queue.send_many([LARGE] * 6)
    for message in queue.lease(n=6).messages:
        message.reject("too large")
    time.sleep(0.01)  # until they are older than the limit
    trimmed = run(queue.context.calls.collect(read_settings({"dead_ttl": 0}))).trimmed
    assert 0 < trimmed <= 3
