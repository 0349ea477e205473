"""When a consumer moves spent messages to the dead letter."""

import logging

from delayq.answers import Collected
from delayq.errors import ServerError
from delayq.message import COLLECTED_AT_ONCE, SLOT_TTL
from tests.support.flow import Play, promoted


def idle(**options):
    play = Play(**options)
    play.wake()
    play.answer()
    return play


def test_collecting_is_told_the_limits_of_the_dead_letter():
    play = Play(dead_max=7, dead_ttl="1h")
    play.wake()
    assert play.ask("collect_garbage").options == {
        "limit": COLLECTED_AT_ONCE,
        "dead_max": 7,
        "dead_ttl": 3_600_000,
        "slot_ttl": SLOT_TTL,
        "ids": (),
    }


def test_what_is_spent_is_collected_at_once():
    play = idle()
    play.wake()
    play.answer(pending_to_ready=promoted(garbage=1))
    assert play.sleeps == 0
    play.wake()
    assert play.asked == ["collect_garbage", "pending_to_ready"]


def test_as_long_as_more_is_spent_collecting_goes_on_without_a_rest():
    play = idle()
    play.wake()
    play.answer(pending_to_ready=promoted(garbage=250))
    for left in (150, 50, 0):
        assert play.sleeps == 0
        play.wake()
        play.answer(
            collect_garbage=Collected(collected=100, trimmed=0, left=left), pending_to_ready=promoted(garbage=left)
        )
    assert play.sleeps == 1


def test_it_collects_once_a_minute_in_any_case():
    play = idle()
    collections = []
    for _ in range(150):
        play.wake()
        if "collect_garbage" in play.asked:
            collections.append(play.now)
        play.answer()
    assert [at - 100 for at in collections] == [60, 120]


def test_trimmed_entries_are_counted_in_the_log(caplog):
    play = Play()
    play.wake()
    play.answer(collect_garbage=Collected(collected=0, trimmed=12, left=0))
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.trimmed == 12


def test_a_refused_collection_is_tried_again_after_a_rest():
    play = Play()
    play.wake()
    play.answer(collect_garbage=ServerError("collect_garbage: WRONGTYPE"))
    assert play.sleeps == 1
    play.wake()
    assert "collect_garbage" in play.asked
