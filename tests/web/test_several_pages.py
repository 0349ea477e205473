"""The dead letters and the search over all queues: each row names its queue, and a bad queue stops no other."""

from __future__ import annotations

import re
from contextlib import ExitStack
from html import unescape

import pytest

from delayq import DelayQueue
from delayq.web import Viewer, several_pages
from tests.support.visitor import text_of

TOKEN = "a-token-of-24-characters"


@pytest.fixture
def three(redis_url):
    """Three queues with four messages each, two of which are dead."""
    with ExitStack() as stack:
        queues = [stack.enter_context(DelayQueue(name, url=redis_url)) for name in ("cards", "mails", "sms")]
        for queue in queues:
            for n in range(4):
                queue.send({"to": f"{queue.name}-{n}"}, "1h", id=f"{queue.name}-{n}", name="note" if n else None)
            for n in (0, 1):
                queue.kill(f"{queue.name}-{n}")
        yield queues


def rows(page):
    """Return the queue and the id of each row."""
    return re.findall(r'href="/message\?queue=(\w+)&amp;id=([\w-]+)">', page.text)


def pages(visitor, path):
    """Return a page and those after it."""
    found = [visitor.get(path)]
    while link := re.search(r'rel="next" href="([^"]+)"', found[-1].text):
        assert len(found) < 20
        found.append(visitor.get(unescape(link[1])))
    assert all(page.status_code == 200 for page in found)
    return found


def test_dead_letters_name_the_queue_of_each_row(three, visit):
    page = visit().get("/dead")
    assert rows(page) == [(name, f"{name}-{n}") for name in ("cards", "mails", "sms") for n in (0, 1)]
    assert "Dead letters 6 in 3 queues cards 2 mails 2 sms 2" in text_of(page)
    assert "cards-1 cards note dead" in text_of(page)
    assert "Id Queue Name State Died Error" in text_of(page)
    assert '<a href="/dead" aria-current="page">Dead letters</a>' in visit().get("/dead").text
    assert 'href="/dead"' in visit().get("/").text


def test_search_names_the_queue_of_each_row(three, visit):
    assert "Found" not in text_of(visit().get("/search"))
    page = visit().get("/search?text=-2")
    assert rows(page) == [("cards", "cards-2"), ("mails", "mails-2"), ("sms", "sms-2")]
    assert "Found 3 in 12 messages." in text_of(page)
    assert rows(visit().get("/search?text=-2&in=headers")) == []
    assert {queue for queue, _ in rows(visit().get("/search?text=mails"))} == {"mails"}
    assert visit().get("/search?text=x&from=cards&cursor=%3Cb%3E").status_code == 400


@pytest.mark.table(
    "limit, numbers",
    [
        ({"PAGE": 4}, ([2, 2, 2], [4, 4, 4])),
        ({"PAGE": 5}, ([2, 2, 2], [5, 5, 2])),
        ({"OF_EACH": 1}, ([3], [12])),
        ({"MAX_QUEUES": 1}, ([2, 2, 2], [4, 4, 4])),
        ({"MAX_SEARCHED": 4}, ([6], [4, 4, 4])),
    ],
)
def test_bounded_pages_lead_on_to_all_queues(three, visit, monkeypatch, limit, numbers):
    with monkeypatch.context() as patch:
        for name, value in limit.items():
            patch.setattr(several_pages, name, value)
        found = [[rows(page) for page in pages(visit(), path)] for path in ("/dead", "/search?text=to")]
    assert tuple([len(page) for page in some if page] for some in found) == numbers
    for some in found:
        assert len({row for page in some for row in page}) == sum(map(len, some))


def test_a_queue_that_cannot_be_read_is_named_and_the_others_are_shown(three, visit, redis_client):
    redis_client.delete("delayq:{mails}:dead", "delayq:{sms}:messages")
    redis_client.set("delayq:{mails}:dead", "no stream")
    redis_client.set("delayq:{sms}:messages", "no hash")
    for path in ("/dead", "/search?text=to"):
        page = visit().get(path)
        assert page.status_code == 200
        assert {queue for queue, _ in rows(page)} >= {"cards"}, path
        assert re.search(r"(mails|sms) cannot be read: \S+", text_of(page)), path
    assert "sms cannot be read: " in text_of(visit().get("/search?text=to"))


def test_viewer_finds_nothing_in_queues_of_others(three, visit):
    visitor = visit(viewers=[Viewer("ada", ["m*"], token=TOKEN)])
    visitor.submit("/login", "/login", token=TOKEN)
    for path in ("/dead", "/search?text=to", "/search?text=to&from=cards"):
        assert {queue for queue, _ in rows(visitor.get(path))} == {"mails"}, path
    assert "2 in 1 queue" in text_of(visitor.get("/dead"))


def test_redis_that_does_not_answer_is_503(visit):
    visitor = visit(url="redis://127.0.0.1:1", deadline=0.1)
    assert [visitor.get(path).status_code for path in ("/dead", "/search?text=x")] == [503, 503]


def test_no_dead_messages(queue, visit):
    queue.send(1, "1h")
    assert "No dead messages." in text_of(visit().get("/dead"))
