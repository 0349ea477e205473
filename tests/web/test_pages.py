"""The pages of the dashboard: what each shows of queues and messages in Redis."""

from __future__ import annotations

import re
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from html import unescape

import pytest

from delayq import DelayQueue, Encrypted, NewMessage, RateLimited
from delayq.web.shown.shown_times import ZONE
from tests.support.visitor import text_of
from tests.support.waiting import wait_until


def test_queues(full, redis_url, visit):
    with DelayQueue("mails", url=redis_url) as mails:
        mails.send_delay_msg(1, "1h")
    page = visit().get("/")
    assert page.status_code == 200
    rows = [text_of_row.split() for text_of_row in re.findall(r"<tr>(.*?)</tr>", page.text, re.DOTALL)][1:]
    assert [re.search(r"queue=(\w+)", " ".join(row))[1] for row in rows] == ["orders", "mails"]  # orders has dead ones
    assert "orders 1 0 0 1 2" in text_of(page)
    assert "mails 1 0 0 0 0" in text_of(page)


def test_queues_in_trouble_are_listed_first(redis_url, visit):
    with ExitStack() as stack:
        names = ("calm", "dead", "nobody", "paused", "well")
        queues = {name: stack.enter_context(DelayQueue(name, url=redis_url)) for name in names}
        for queue in queues.values():
            queue.send("later", delay="1h", id="later")
        queues["nobody"].send("due", at=datetime.now(UTC) - timedelta(minutes=1))
        queues["paused"].send("due")
        queues["paused"].pause()
        queues["dead"].kill("later")
        page = visit().get("/")
    assert re.findall(r'id="queue-(\w+)"', page.text) == ["nobody", "paused", "dead", "calm", "well"]


def test_lateness_of_more_than_an_hour_is_said_as_such(queue, visit):
    queue.callback(lambda message: None)
    queue.send_schedule_msg(1, datetime.now(UTC) - timedelta(hours=2))
    queue.run(burst=True)
    for page in ("/", "/queue?queue=orders"):
        assert "> 1h" in text_of(visit().get(page)), page


def test_no_queues_yet(visit):
    assert "No queues yet" in text_of(visit().get("/"))


def test_queue_that_cannot_be_read_is_named_beside_the_others(queue, redis_client, visit):
    queue.send_delay_msg(1, "1h")
    redis_client.sadd("delayq:queues", "broken", "no name <b>")
    redis_client.set("delayq:{broken}:pending", "no sorted set")
    text = text_of(visit().get("/"))
    assert "broken: " in text
    assert "WRONGTYPE" in text
    assert "orders 1" in text


def test_queue(full, visit):
    full.pause(reason="the bank is closed")
    text = text_of(visit().get("/queue?queue=orders"))
    assert "1 pending" in text
    assert "1 backoff" in text
    assert "2 dead" in text
    assert "Paused until it is resumed: the bank is closed" in text
    assert "Delivered 4 Done 1 Failed attempts 3" in text


def test_what_limits_and_paused_names_hold_back_is_told(queue, visit):
    queue.pause(name="mail", reason="no relay")
    queue.send_delay_msg(1, name="mail")
    with queue.lease() as held:
        assert held is None
    page = visit().get("/")
    assert "orders 0 0 + 1 throttled 0" in text_of(page)
    assert '<td class="number" data-label="Due">' in page.text  # a zero is not shown on a narrow screen
    text = text_of(visit().get("/queue?queue=orders"))
    assert "mail is paused until it is resumed: no relay" in text
    assert "Due, but held back 1, by limits or paused names" in text


def test_a_message_that_no_worker_takes_says_why_it_comes_back(queue, visit):
    queue.send_delay_msg(1, id="m", name="letter.sent")
    queue.on("invoice.sent")(print)
    queue.run(burst=True)
    text = text_of(visit().get("/message?queue=orders&id=m"))
    assert "Sent back 1 time: no function of the worker takes it, as its log says" in text


def test_a_message_shows_its_hours(queue, visit):
    queue.send_delay_msg(1, "1h", id="m", hours="00:00-24:00", tz="Asia/Tokyo")
    assert "Hours 00:00-24:00 Asia/Tokyo" in text_of(visit().get("/message?queue=orders&id=m"))


def test_messages_by_state_page_by_page(queue, visit):
    queue.send_many([{"n": n} for n in range(60)], "1h")
    visitor = visit()
    first = visitor.get("/messages?queue=orders")
    more = re.search(r'rel="next" href="([^"]+)"', first.text)[1].replace("&amp;", "&")
    second = visitor.get(more)
    ids = [re.findall(r'class="id" href="[^"]+id=([^"]+)"', page.text) for page in (first, second)]
    assert [len(some) for some in ids] == [50, 10]
    assert len(set(ids[0] + ids[1])) == 60
    assert 'rel="next"' not in second.text
    assert "No messages here" in text_of(visitor.get("/messages?queue=orders&state=active"))
    for period, error in (
        ("due_from=soon", "\"Due from (UTC)\" must look like 2027-01-31T09:00, not 'soon'"),
        ("due_from=2031-01-02&due_to=2031-01-01", '"Due from (UTC)" is after "Before (UTC)"'),
    ):
        wrong = visitor.get(f"/messages?queue=orders&{period}")
        assert (wrong.status_code, error in text_of(wrong)) == (400, True), period
        assert f'value="{period.partition("&")[0].partition("=")[2]}" aria-describedby' in wrong.text
    later = visitor.get("/messages?queue=orders&due_from=2198-01-01T00:00")
    assert "No messages here" in text_of(later)


def test_lists_have_a_column_of_names_if_a_message_has_one(full, visit):
    visitor = visit()
    pages = ("/messages?queue=orders", "/dead?queue=orders", "/search?queue=orders&text=refund")
    full.send_delay_msg("refund", "1h", id="refund")
    full.send_delay_msg("refund", "1h", id="other", name="refund")
    full.kill("refund")
    shown = [visitor.get(page).text for page in pages]
    assert [('class="name">invoice' in page, ">Name</th>" in page) for page in shown] == [
        (True, True),
        (False, False),
        (False, True),
    ]
    full.kill("waits")
    assert 'class="name">invoice' in visitor.get("/dead?queue=orders").text
    full.cancel("other")
    assert ">Name</th>" not in visitor.get("/messages?queue=orders&state=backoff").text


def test_message_with_its_whole_story(full, visit):
    visitor = visit()
    waits = text_of(visitor.get("/message?queue=orders&id=waits"))
    assert '{ "order": 1 }' in waits
    assert "tenant acme" in waits
    assert "Name invoice" in waits
    assert re.search(f"Due in (1h|59m 5.s) {full.get('waits').due:%Y-%m-%d %H:%M:%S} UTC", waits)
    spent = text_of(visitor.get("/message?queue=orders&id=spent"))
    told = re.search(r"Story (.*) Payload", spent)[1]
    kinds = re.findall(r"(\w+) \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} UTC", told)
    assert [kind for kind in kinds if kind != "due"] == ["sent", "delivered", "failed", "dead"]
    assert "by " in told
    assert "ValueError: not paid 17 times" in told
    done = text_of(visitor.get("/message?queue=orders&id=done"))
    assert 'Result JSON { "total": 42 }' in done


def test_message_that_is_gone_has_its_story(queue, visit):
    queue.send_delay_msg(1, "1h", id="gone")
    queue.cancel("gone")
    text = text_of(visit().get("/message?queue=orders&id=gone"))
    assert "The message is gone" in text
    assert "cancelled" in text


def test_story_in_a_long_log_is_found_by_the_times_of_the_message(queue, visit, monkeypatch):
    sent = queue.send_delay_msg(1, "1h")
    for n in range(12):
        queue.send_delay_msg(n, "1h")
    monkeypatch.setattr("delayq.web.message_story.MAX_READ", 5)
    monkeypatch.setattr("delayq.web.message_story.AROUND", 3)
    text = text_of(visit().get(f"/message?queue=orders&id={sent.id}"))
    assert "Story sent " in text
    assert "The log is long" in text


def read_on(visitor, page):
    """Return the kinds of events that each page of a long log shows, and the last page."""
    shown, link = [], re.search(r'id="read-all" href="([^"]*)"', page.text)
    while link:
        page = visitor.get(unescape(link[1]))
        assert page.status_code == 200
        shown.append(re.findall(r"<b>(\w+)</b> <time", page.text))
        link = re.search(r'id="read-on" href="([^"]*)"', page.text)
    return shown, text_of(page)


def test_story_in_a_long_log_grows_until_it_is_whole(queue, visit, monkeypatch):
    for name, value in (("MAX_READ", 5), ("AROUND", 1), ("PAGE", 2), ("MAX_PARTS", 2)):
        monkeypatch.setattr(f"delayq.web.message_story.{name}", value)
    queue.send_delay_msg(1, "1h", id="m")
    for n in range(9):
        queue.send_delay_msg(n, "1h", id=f"n{n}")
    queue.reschedule("m", "2h")
    for n in range(25):
        queue.send_delay_msg(n, "1h", id=f"o{n}")
    queue.cancel("m")
    queue.cancel("n1")
    visitor = visit()
    page = visitor.get("/message?queue=orders&id=m")
    assert "events between may be missing" in text_of(page)
    shown, text = read_on(visitor, page)
    assert shown == [["sent"], *[["sent", "rescheduled"]] * 3, ["sent", "rescheduled", "cancelled"]]
    assert "This is all that the log says, up to its end." in text


def test_story_of_more_than_a_page_keeps_is_told_to_be_cut(queue, visit, monkeypatch):
    monkeypatch.setattr("delayq.web.message_story.MAX_READ", 3)
    monkeypatch.setattr("delayq.web.message_story.MAX_KEPT", 2)
    monkeypatch.setattr("delayq.web.message_pages.MAX_KEPT", 2)
    queue.send_delay_msg(1, "1h", id="m")
    for n in range(6):
        queue.reschedule("m", f"{n + 2}h")
    visitor = visit()
    page = visitor.get("/message?queue=orders&id=m&after=0")
    assert "It is long: the next part shows the last of it again." in text_of(page)
    after = visitor.get(unescape(re.search(r'id="read-on" href="([^"]*)"', page.text)[1]))
    assert re.findall(r"<b>(\w+)</b> <time", after.text) == ["rescheduled"] * 5


@pytest.mark.parametrize("found", ["x", "1-", "-1", "1--2", "9" * 30, "-".join("1" * 300), "7", "0"])
def test_offsets_of_nothing_in_an_address_do_no_harm(queue, visit, found):
    queue.send_delay_msg(1, "1h", id="m")
    page = visit().get(f"/message?queue=orders&id=m&after=0&found={found}")
    assert page.status_code == 200
    assert re.findall(r"<b>(\w+)</b> <time", page.text) == ["sent"]


def test_message_that_a_long_log_may_know_is_not_called_unknown(queue, visit, monkeypatch):
    monkeypatch.setattr("delayq.web.message_story.MAX_READ", 5)
    monkeypatch.setattr("delayq.web.message_story.AROUND", 1)
    queue.send_delay_msg(1, "1h", id="m")
    queue.cancel("m")
    for n in range(9):
        queue.send_delay_msg(n, "1h")
    page = visit().get("/message?queue=orders&id=m")
    assert page.status_code == 200
    assert (
        "There is no such message now. Story The event log has nothing about this message where it was read."
        in text_of(page)
    )
    assert 'id="read-all"' in page.text


def test_story_says_that_its_beginning_was_trimmed(queue, visit, redis_client):
    queue.send_delay_msg(1, "1h", id="m")
    queue.reschedule("m", "2h")
    redis_client.xtrim(queue.context.calls.keys.events, maxlen=1, approximate=False)
    text = text_of(visit().get("/message?queue=orders&id=m"))
    assert "Story rescheduled" in text
    assert re.search("The log begins at .*: what happened before was trimmed", text)


def test_dead_letter_by_group(full, visit):
    visitor = visit()
    page = visitor.get("/dead?queue=orders")
    text = text_of(page)
    assert "ValueError: not paid # times 1" in text
    assert "no such customer 1" in text
    groups = re.findall(r"group=([0-9a-f]{8})", page.text)
    assert len(groups) == 2
    listed = [set(re.findall(r"id=(\w+)\"", visitor.get(f"/dead?queue=orders&group={group}").text)) for group in groups]
    assert sorted(listed, key=str) == [{"rejected"}, {"spent"}]


@pytest.mark.long
@pytest.mark.table(
    "path, entry, error",
    [
        ("/message?queue=orders&id=none", "none", "There is no such message"),
        ("/message?queue=orders&id=a+b", "a b", '"Id of a message" must be 1 to 128'),
        ("/schedules?queue=orders&prefix=a+b", "a b", '"Names that begin with" must be 1 to 100'),
    ],
)
def test_wrong_entry_to_look_for_comes_back_with_what_is_wrong(full, visit, path, entry, error):
    reply = visit().get(path)
    assert (reply.status_code, error in text_of(reply)) == (404 if entry == "none" else 400, True)
    assert f'value="{entry}" aria-invalid="true"' in reply.text
    assert '<a href="/queue?queue=orders">orders</a>' in reply.text


def test_what_is_not_there_is_404_and_what_is_wrong_400(full, visit):
    visitor = visit()
    for path in ("/queue?queue=other", "/queue", "/queue?queue=%00", "/message?queue=orders&id=none", "/nothing"):
        assert visitor.get(path).status_code == 404, path
    for path in (
        "/messages?queue=orders&cursor=%3Cb%3E",
        "/dead?queue=orders&group=x",
    ):
        reply = visitor.get(path)
        assert reply.status_code == 400, path
        assert "That did not work" in text_of(reply)


def test_error_leads_back_to_its_queue(full, visit):
    visitor = visit(write=True)
    back = '<a href="/queue?queue=orders">orders</a>'
    assert back in visitor.get("/messages?queue=orders&state=none").text
    assert back in visitor.submit("/queue?queue=orders", "/do/cancel", queue="orders", id="a b").text
    other = visitor.get("/queue?queue=other").text
    assert back not in other
    assert '<a href="/">All queues</a>' in other


def test_redis_that_does_not_answer_is_503(visit):
    reply = visit(url="redis://:secret@127.0.0.1:1", deadline=0.1).get("/")
    assert reply.status_code == 503
    assert "Redis does not answer" in text_of(reply)
    assert "secret" not in reply.text


def test_search(full, visit, monkeypatch):
    visitor = visit()
    asked = text_of(visitor.get("/search?queue=orders"))
    assert "Encrypted payloads are not searched, nor what the queue redacts." in asked
    assert "Found" not in asked
    found = visitor.get("/search?queue=orders&text=not+paid")
    assert "Found 2 in" in text_of(found)
    assert set(re.findall(r'id=(\w+)"', found.text)) == {"failed", "spent"}
    assert "Found 0 in" in text_of(visitor.get("/search?queue=orders&text=not+paid&in=headers"))
    assert "Found 1 in" in text_of(visitor.get("/search?queue=orders&text=acme&in=headers"))
    monkeypatch.setattr("delayq.web.message_pages.MAX_SEARCHED", 1)
    part = visitor.get("/search?queue=orders&text=not+paid")
    assert "so far" in text_of(part)
    more = re.search(r'rel="next" href="([^"]+)"', part.text)[1].replace("&amp;", "&")
    assert visitor.get(more).status_code == 200


def test_workers(queue, visit):
    assert "No worker" in text_of(visit().get("/workers?queue=orders")) or queue.send_delay_msg(1, "1h")
    queue.callback(lambda message: None)
    queue.start_consume()
    wait_until(queue.workers)
    (worker,) = queue.workers()
    text = text_of(visit().get("/workers?queue=orders"))
    queue.stop_consume()
    assert f"{worker.host}:{worker.pid} working {worker.version}" in text


def test_schedules_with_next_occurrences(queue, visit):
    queue.schedules.add("daily", cron="0 9 * * *", tz="Europe/Berlin", payload=1, labels=["reports"])
    queue.schedules.add("often", every="15m", payload=1)
    queue.schedules.add("weekly", every="7d", tz="Europe/Berlin", payload=1)
    queue.schedules.pause("often")
    visitor = visit()
    visitor.cookies.set(ZONE, "Europe/Berlin")
    text = text_of(visitor.get("/schedules?queue=orders"))
    times = [f"{time:%a %Y-%m-%d %H:%M %Z}" for time in queue.schedules.next("daily", 3)]
    assert f"daily reports 0 9 * * * Europe/Berlin {' '.join(times)}" in text
    assert "often paused every 15m" in text
    assert "weekly every 7d Europe/Berlin" in text
    assert "UTC" not in text
    queue.schedules.add("quick", every="20s", payload=1)
    assert re.search(r"quick every 20s .*\d\d:\d\d:[24]0 UTC", text_of(visit().get("/schedules?queue=orders")))
    assert "daily" not in text_of(visit().get("/schedules?queue=orders&prefix=o"))


def test_forecast(queue, visit):
    half_past = (datetime.now(UTC) + timedelta(hours=2)).replace(minute=30)  # within an hour, whatever the time is
    queue.send_many([NewMessage(n, id=str(n), at=half_past, name="mail") for n in range(7)])
    queue.schedules.add("often", every="1h", payload=1)
    text = text_of(visit().get("/forecast?queue=orders"))
    assert "7 0 1 8" in text
    assert "mail 7" in text
    assert "Nothing fires" not in text
    queue.limits.set(rate_limit="1/m")
    text = text_of(visit().get("/forecast?queue=orders"))
    assert re.search(r"nothing waits now Will wait at most 5 messages in [12]h", text)
    queue.pause()
    assert "The queue is paused until it is resumed" in text_of(visit().get("/forecast?queue=orders&until=1h"))
    assert visit().get("/forecast?queue=orders&until=1000y").status_code == 400


def test_exact_times_that_no_page_of_a_message_has_need_no_mouse(queue, visit):
    due = queue.send_delay_msg(1, "1h").due
    assert re.search(
        f"Next due in (1h|59m 5.s) {due:%Y-%m-%d %H:%M:%S} UTC", text_of(visit().get("/queue?queue=orders"))
    )

    @queue.callback
    def refuse(message):
        raise RateLimited("2h")

    queue.send_delay_msg(1, name="sms")
    queue.run(burst=True)
    closed = next(limit.closed_until for limit in queue.limits.list() if limit.closed_until)
    assert f"closed until {closed:%Y-%m-%d %H:%M:%S}" in text_of(visit().get("/limits?queue=orders"))


def test_limits(queue, visit):
    queue.limits.set("mail", rate_limit="200/s", running=3)
    queue.pause(name="sms", reason="no credit")
    text = text_of(visit().get("/limits?queue=orders"))
    assert "mail 200/s" in text
    assert "sms" in text
    assert "paused no credit" in text
    until = queue.pause("2h", name="sms", reason="no credit").until
    assert f"paused until {until:%Y-%m-%d %H:%M:%S}" in text_of(visit().get("/limits?queue=orders"))


@pytest.mark.long
def test_what_a_queue_redacts_is_hidden_unless_the_dashboard_reveals_it(redis_url, visit):
    number = "4111-1111"
    with DelayQueue("cards", url=redis_url, redact=["number"], retention="1h") as cards:
        cards.callback(lambda message: {"number": number} if message.id == "done" else False)
        for id in ("done", "dead"):
            cards.send_delay_msg({"number": number, "user": 7}, id=id, retries=0)
        cards.run(burst=True)
        cards.send_delay_msg({"number": number, "user": 7}, "1h", id="waits")
    places = [f"/message?queue=cards&id={id}" for id in ("waits", "dead", "done")]
    places += ["/messages?queue=cards", "/dead?queue=cards", "/search?queue=cards&text=user"]
    shown = {
        reveal: [text_of(page) for page in map(visit(reveal=reveal).get, places) if page.status_code == 200]
        for reveal in (False, True)
    }
    assert len(shown[False]) == len(shown[True]) == len(places)
    assert number not in "".join(shown[False])
    assert "".join(shown[False]).count("[redacted]") == "".join(shown[True]).count(number) > 0
    for reveal, found in ((False, 0), (True, 2)):
        assert f"Found {found} in" in text_of(visit(reveal=reveal).get(f"/search?queue=cards&text={number}"))


def test_encrypted_payload_is_said_to_be_one(redis_url, visit):
    with DelayQueue("cards", url=redis_url, codec=Encrypted({"k": b"0" * 32})) as cards:
        cards.send_delay_msg("4111", "1h", id="card")
    visitor = visit()
    for path in ("/messages?queue=cards", "/message?queue=cards&id=card"):
        text = text_of(visitor.get(path))
        assert "encrypted, " in text, path
        assert "4111" not in text


FOREIGN_SCHEDULES = {
    "definition": lambda redis, keys: redis.hset(keys.schedule_specs, "odd", b"\xff{"),
    "rule": lambda redis, keys: redis.hset(keys.schedule_specs, "odd", '{"retries":1,"cron":"x"}\n'),
    "zone": lambda redis, keys: redis.hset(keys.schedule_specs, "odd", '{"retries":1,"cron":"* * * * *","tz":"X/Y"}\n'),
    "start": lambda redis, keys: redis.hset(
        keys.schedule_specs, "odd", '{"retries":1,"every":1,"start":9999999999999999}\n'
    ),
    "interval": lambda redis, keys: redis.hset(
        keys.schedule_specs, "odd", '{"retries":1,"every":999999999999999999}\n'
    ),
    "state": lambda redis, keys: redis.hset(keys.schedule_states, "odd", "a b c d"),
    "short state": lambda redis, keys: redis.hset(keys.schedule_states, "odd", "1"),
    "bytes as a state": lambda redis, keys: redis.hset(keys.schedule_states, "odd", b"\xff \xfe 1 0"),
    "last time": lambda redis, keys: redis.hset(keys.schedule_states, "odd", f"1 1 {10**20} 0"),
    "next time": lambda redis, keys: redis.zadd(keys.schedules, {"odd": "-inf"}),
    "late time": lambda redis, keys: redis.zadd(keys.schedules, {"odd": 1e18}),
    "fraction": lambda redis, keys: redis.zadd(keys.schedules, {"odd": 1e12 + 0.5}),
    "name": lambda redis, keys: redis.hset(keys.schedule_specs, b"odd\xff", b"{"),
}
"""Values that another program may have stored."""


@pytest.mark.parametrize("foreign", FOREIGN_SCHEDULES)
def test_a_foreign_schedule_is_named_and_the_others_are_shown(queue, redis_client, visit, foreign, caplog):
    queue.schedules.add("odd", every="1h")
    queue.schedules.add("nightly", cron="0 0 * * *")
    FOREIGN_SCHEDULES[foreign](redis_client, queue.context.calls.keys)
    visitor = visit()
    for page in ("/", "/queue?queue=orders", "/schedules?queue=orders", "/schedules?queue=orders&prefix=n"):
        assert visitor.get(page).status_code == 200, page
    assert "nightly" in text_of(visitor.get("/schedules?queue=orders"))
    forecast = text_of(visitor.get("/forecast?queue=orders"))
    assert sum(bucket.scheduled for bucket in queue.forecast("24h").buckets) >= 1
    assert "Forecast" in forecast
    assert "nightly" in {info.name for info in queue.schedules.list()}
    assert [one.name for one in queue.schedules.upcoming(3, prefix="nightly")] == ["nightly"] * 3
    assert "nightly" in {one.name for one in queue.schedules.upcoming(100)}
    assert queue.schedules.remove("odd") == 1


def test_message_says_why_it_waits(queue, visit):
    queue.pause(reason="the bank is closed")
    queue.send_delay_msg(1, id="waits")
    page = text_of(visit().get("/message?queue=orders&id=waits"))
    assert "the queue is paused until it is resumed: the bank is closed" in page
