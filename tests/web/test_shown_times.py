"""Times on pages: in the time zone of who looks, which is named, and no word of Redis or of the code beside them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from delayq.broker.keys import META_TOTALS
from delayq.queue.inspecting.event_log import EventKind
from delayq.web.shown.labels import event_label, totals_of
from delayq.web.shown.shown_times import ZONE, exact_in, time_in
from tests.support.visitor import text_of
from tests.web.test_browser import looking, serving

KATHMANDU = ZoneInfo("Asia/Kathmandu")
DUE = datetime(2031, 7, 1, 18, 30, tzinfo=UTC)


@pytest.fixture
def far(visit):
    """Somebody in Nepal, 5 h 45 min ahead, who may act."""
    visitor = visit(write=True)
    visitor.cookies.set(ZONE, "Asia/Kathmandu")
    return visitor


@pytest.mark.table(
    "zone, text",
    [
        ("UTC", "2031-07-01 18:30:00 UTC"),
        ("Europe/Berlin", "2031-07-01 20:30:00 CEST"),
        ("Asia/Kathmandu", "2031-07-02 00:15:00 UTC+0545"),
        ("America/Sao_Paulo", "2031-07-01 15:30:00 UTC-03"),
    ],
)
def test_exact_time_has_the_name_or_offset_of_its_zone(zone, text):
    assert exact_in(ZoneInfo(zone), DUE) == text


@pytest.mark.table(
    "text, zone, hour",
    [
        ("2031-07-01T09:00", "Europe/Berlin", 7),
        ("2031-07-01T09:00+05:00", "Europe/Berlin", 4),
        ("2031-10-26T02:30", "Europe/Berlin", 0),
        ("0001-01-01T00:00", "Europe/Berlin", 0),
    ],
)
def test_time_of_a_form_is_in_the_zone_of_its_page(text, zone, hour):
    assert time_in(text, "at", ZoneInfo(zone)).astimezone(UTC).hour == hour


def test_pages_and_their_live_parts_are_in_the_zone_that_the_browser_told(queue, far):
    queue.send("later", at=DUE, id="m")
    queue.pause(DUE, name="sms")
    there = "2031-07-02 00:15:00 UTC+0545"
    for path, text in (
        ("/queue?queue=orders", f"{there} Late"),
        ("/queue?queue=orders", f"sms is paused until {there}"),
        ("/message?queue=orders&id=m", f"Due in \\w+( \\w+)? {there}"),
        ("/message?queue=orders&id=m", "due 2031-07-02 00:15:00.000 UTC\\+0545"),
        ("/message?queue=orders&id=m", "it is due at 2031-07-02 00:15:00 UTC\\+0545|due \\S+ 2031-07-02 00:15"),
        ("/message?queue=orders&id=m", "Due at \\(Asia/Kathmandu\\)"),
        ("/messages?queue=orders", "Due from \\(Asia/Kathmandu\\)"),
        ("/limits?queue=orders", there),
    ):
        page = text_of(far.get(path))
        assert re.search(text.replace("UTC+", "UTC\\+"), page), (path, text, page)
        assert page.endswith("Times are in Asia/Kathmandu. With JavaScript they are in your time zone."), path


def test_entries_are_in_the_zone_of_the_page(queue, far):
    queue.send("later", "1h", id="m")
    page = "/message?queue=orders&id=m"
    far.submit(page, "/do/reschedule", queue="orders", id="m", at="2031-07-02T00:15")
    assert queue.get("m").due == DUE
    wrong = far.submit(page, "/do/reschedule", queue="orders", id="m", at="noon")
    assert '"Due at (Asia/Kathmandu)" must look like' in text_of(wrong)
    paused = text_of(far.submit("/queue?queue=orders", "/do/pause", queue="orders", duration="2h"))
    until = queue.counts().paused.until
    assert f"Paused orders until {exact_in(KATHMANDU, until)}." in paused
    for period, number in (("due_from=2031-07-02T00:15", 1), ("due_from=2031-07-02T00:16", 0)):
        assert far.get(f"/messages?queue=orders&{period}").text.count('class="id"') == number


def test_hours_and_days_begin_in_the_zone(queue, far):
    today = datetime.now(KATHMANDU).date()
    queue.send("later", at=datetime.now(UTC) + timedelta(days=2))
    text = text_of(far.get("/forecast?queue=orders&until=7d"))
    day = today + timedelta(days=2)
    assert re.search(f"{day:%a} {day.day} {day:%b} 1 0 0 1", text)
    assert "times in Asia/Kathmandu" in text


@pytest.mark.parametrize(
    "told", ["", "Nowhere/Else", "../../etc/passwd", "Europe", "x" * 10_000, "Asia/<b>", "UTC\x00"]
)
def test_a_zone_that_is_none_is_utc(queue, visit, told):
    queue.send("later", at=DUE, id="m")
    page = visit().get("/message?queue=orders&id=m", headers={"Cookie": f"{ZONE}={told}"})
    assert page.status_code == 200
    assert "2031-07-01 18:30:00 UTC" in text_of(page)
    assert "Times are in UTC." in text_of(page)


def test_the_script_tells_the_zone_once(queue, redis_url, browser):
    queue.send("later", at=DUE, id="m")
    with serving(url=redis_url) as address, looking(browser, timezone_id="Europe/Berlin") as (page, found):
        loads = []
        page.on("request", lambda request: request.is_navigation_request() and loads.append(request.url))
        page.goto(f"{address}/message?queue=orders&id=m")
        page.get_by_text("Times are in Europe/Berlin.").wait_for()
        page.goto(f"{address}/queue?queue=orders")
        assert page.get_by_text("2031-07-01 20:30:00 CEST").is_visible()
        assert [url.rpartition("/")[2].partition("?")[0] for url in loads] == ["message", "message", "queue"]
        assert found == []


def test_every_event_and_total_has_a_word_that_people_use():
    for word in [*map(event_label, EventKind), *(label for label, _ in totals_of(dict.fromkeys(META_TOTALS, 1)))]:
        assert "_" not in word, word
        assert word not in ("acked", "nacked", "promoted", "redriven"), word
    assert totals_of({"sent": 2, "token": 17, "acked": 0}) == [("sent", 2)]


def test_pages_have_no_names_of_fields(full, visit):
    for path in ("/queue?queue=orders", "/message?queue=orders&id=spent", "/message?queue=orders&id=failed"):
        text = text_of(visit().get(path))
        assert not re.search(r"\b(n?acked|promoted|redriven|\w+_\w+|\d{13})\b", text), path
