"""When a consumer moves spent messages to the dead letter."""

import logging

from delayq.broker.replies import CollectReply
from delayq.errors import ServerError
from tests.support.loop_harness import LoopHarness, promoted


def idle(**options):
    harness = LoopHarness(**options)
    harness.wake()
    harness.reply()
    return harness


def test_collection_uses_the_dead_letter_limits():
    harness = LoopHarness(dead_max=7, dead_ttl="1h")
    harness.wake()
    limits = harness.ask("collect").what
    assert (limits.dead_max, limits.dead_ttl) == (7, 3_600_000)


def test_spent_messages_are_collected_at_once():
    harness = idle()
    harness.wake(woken=True)
    harness.reply(pending_to_ready=promoted(garbage=1))
    assert harness.sleeps == 0
    harness.wake()
    assert harness.asked == ["collect"]


def test_collection_continues_while_more_is_spent():
    harness = idle()
    harness.wake(woken=True)
    harness.reply(pending_to_ready=promoted(garbage=250))
    for left in (150, 50, 0):
        assert harness.sleeps == 0
        harness.wake()
        harness.reply(collect=CollectReply(collected=100, trimmed=0, left=left))
    assert harness.sleeps == 1


def test_it_collects_once_a_minute_in_any_case():
    harness = idle()
    collections = []
    for _ in range(150):
        harness.wake()
        if "collect" in harness.asked:
            collections.append(harness.now)
        harness.reply()
    assert [at - 100 for at in collections] == [60, 120]


def test_trimmed_entries_are_counted_in_the_log(caplog):
    harness = LoopHarness()
    harness.wake()
    harness.reply(collect=CollectReply(collected=0, trimmed=12, left=0))
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.trimmed == 12


def test_refused_collection_is_retried_after_a_pause():
    harness = LoopHarness()
    harness.wake()
    harness.reply(collect=ServerError("collect: WRONGTYPE"))
    assert harness.sleeps == 1
    harness.wake()
    assert "collect" in harness.asked
