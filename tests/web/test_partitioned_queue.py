"""The dashboard of a queue over partitions: as of any other queue."""

from __future__ import annotations

import pytest

from delayq import DelayQueue
from tests.web.test_actions import text_of


@pytest.fixture
def spread(redis_url):
    with DelayQueue("orders", url=redis_url, partitions=4, events=True) as queue:
        queue.send({"n": 1}, 60, id="waits")
        queue.send_many([{"n": number} for number in range(40)], 3600)
        yield queue


@pytest.mark.usefixtures("spread")
def test_it_is_listed_once_with_the_messages_of_all_partitions(visit):
    page = visit().get("/").text
    assert "orders" in page
    assert "orders#" not in page
    assert "41" in text_of(visit().get("/queue?queue=orders"))


def test_an_action_is_done_and_told_in_the_story_of_its_message(visit, spread):
    visitor, page = visit(write=True), "/message?queue=orders&id=waits"
    assert "sent" in text_of(visitor.get(page))
    assert "waits: rescheduled." in text_of(
        visitor.submit(page, "/do/reschedule", queue="orders", id="waits", delay="5h")
    )
    assert [event.id for event in spread.events() if event.kind == "audit"] == ["waits"]
    assert ": cancelled." in text_of(visitor.submit(page, "/do/cancel", queue="orders", id="waits"))
    assert spread.get("waits") is None
