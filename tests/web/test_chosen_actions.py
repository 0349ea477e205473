"""Actions on the messages that were chosen in a list: what each becomes, and what the page, log and story say of it."""

from __future__ import annotations

import logging
import re
from html import unescape

import pytest

from delayq import DelayQueue, State
from delayq.errors import ServerError
from delayq.web import Viewer
from tests.support.visitor import text_of

TOKEN = "a-token-of-24-characters"
PENDING = "/messages?queue=orders"
DEAD = "/dead?queue=orders"


@pytest.fixture
def five(queue) -> DelayQueue:
    """The queue with `m0` to `m4` that wait."""
    for n in range(5):
        queue.send({"n": n}, "1h", id=f"m{n}")
    return queue


@pytest.fixture
def visitor(visit):
    return visit(write=True)


def choose(visitor, page, path, chosen, **fields):
    """Send the form of a page with some messages chosen, and return what it leads to."""
    (query,) = {unescape(one) for one in re.findall(r'name="page_query" value="([^"]*)"', visitor.get(page).text)}
    return visitor.submit(page, path, queue="orders", page_query=query, chosen=chosen, **fields)


def test_what_is_chosen_is_cancelled_and_told_exactly(five, visitor):
    ids = ["m0", "m1", "m2", "m3", "none"]
    five.reschedule("m3", 0)
    five.kill("m2")
    with five.lease("1m") as running:
        assert running.id == "m3"
        done = choose(visitor, PENDING, "/do/messages", ids, what="cancel")
        assert "2 cancelled, 1 was running, 1 was dead, 1 was gone." in text_of(done)
        running.ack()
    assert five.counts().pending == 1
    assert five.get("m4").state is State.PENDING


def test_what_is_chosen_is_rescheduled_or_made_due(five, visitor):
    before = five.get("m0").due
    done = choose(visitor, PENDING, "/do/messages", ["m0", "m1"], what="reschedule", delay="5h")
    assert "2 rescheduled." in text_of(done)
    assert (five.get("m0").due - before).total_seconds() > 3 * 3600
    assert "2 made due." in text_of(choose(visitor, PENDING, "/do/messages", ["m0", "m2", "m2"], what="run"))
    assert (five.counts().ready, five.counts().pending) == (2, 3)


def test_what_runs_is_asked_to_stop(five, visitor):
    five.reschedule("m1", 0)
    with five.lease("1m") as running:
        page = f"{PENDING}&state=active"
        assert 'value="cancel"' not in visitor.get(page).text
        assert "1 asked to stop." in text_of(choose(visitor, page, "/do/messages", ["m1"], what="stop"))
        running.ack()


def test_dead_messages_are_redriven_or_purged(five, visitor):
    for n in range(4):
        five.kill(f"m{n}")
    entries = {message.id: message.entry for message in five.dead.list().messages}
    five.send("new", "1h", id="m1")
    five.dead.purge(entries["m2"])
    done = choose(visitor, DEAD, "/do/dead", [entries[id] for id in ("m0", "m1", "m2")], what="redrive")
    assert "1 sent again, 1 stays, as a message has its id, 1 was gone." in text_of(done)
    assert five.get("m0").state is State.READY
    done = choose(visitor, DEAD, "/do/dead", [entries["m1"], entries["m3"], entries["m2"]], what="purge")
    assert "2 purged, 1 was gone." in text_of(done)
    assert five.counts().dead == 0


def test_the_page_comes_back_with_its_filter(five, visitor):
    page = f"{PENDING}&state=pending&due_from=2020-01-01T00:00"
    token = visitor.form_token(page)
    reply = visitor.post(
        "/do/messages",
        {
            "form_token": token,
            "queue": "orders",
            "page_query": "queue=mails&state=pending&due_from=2020-01-01T00:00",
            "chosen": ["m0"],
            "what": "cancel",
        },
    )
    assert reply.headers["Location"] == "/messages?queue=orders&state=pending&due_from=2020-01-01T00%3A00"


@pytest.mark.table(
    "path, fields, error",
    [
        ("messages", {"what": "cancel"}, "Choose messages first: nothing was done"),
        ("messages", {"what": "reschedule", "chosen": ["m0"]}, '"Due in" is missing'),
        ("messages", {"what": "reschedule", "chosen": ["m0"], "delay": "soon"}, "\"Due in\" must look like '1h30m'"),
        ("messages", {"what": "cancel", "chosen": ["m0", "a b"]}, "Id must be 1 to 128"),
        ("messages", {"what": "burn", "chosen": ["m0"]}, "Messages can be cancelled, stopped, rescheduled or run"),
        ("messages", {"what": "cancel", "chosen": [f"x{n}" for n in range(51)]}, "Choose at most 50 messages, not 51"),
        ("dead", {"what": "burn", "chosen": ["m4:1"]}, "Dead messages can be redriven or purged"),
        ("dead", {"what": "purge"}, "Choose messages first: nothing was done"),
    ],
)
def test_wrong_choice_changes_nothing_and_is_kept(five, visitor, path, fields, error):
    five.kill("m4")
    page = PENDING if path == "messages" else DEAD
    reply = visitor.submit(page, f"/do/{path}", queue="orders", **fields)
    assert (reply.status_code, error in text_of(reply)) == (400, True)
    assert len(re.findall(r"<input[^>]* checked", reply.text)) == len({"m0"} & set(fields.get("chosen", ())))
    assert (five.counts().pending, five.counts().dead) == (4, 1)


def test_failure_in_the_middle_says_how_far_it_came(five, visitor, monkeypatch):
    cancel = DelayQueue.cancel

    def failing(self, id, **options):
        if id == "m2":
            raise ServerError("NOPERM")
        return cancel(self, id, **options)

    monkeypatch.setattr(DelayQueue, "cancel", failing)
    done = text_of(choose(visitor, PENDING, "/do/messages", ["m0", "m1", "m2", "m3"], what="cancel"))
    assert "2 cancelled; then m2 failed, and the rest was not tried: NOPERM." in done
    refused = visitor.submit(PENDING, "/do/messages", queue="orders", chosen=["m2"], what="cancel")
    assert refused.status_code == 502


def test_only_who_may_act_can_choose(five, visit, caplog):
    caplog.set_level(logging.INFO)
    five.kill("m4")
    for page in (PENDING, DEAD):
        assert 'name="chosen"' not in visit().get(page).text
        assert 'name="chosen"' in visit(write=True).get(page).text
    reader = visit(viewers=[Viewer("ada", token=TOKEN, write=False)], write=True)
    reader.submit("/login", "/login", token=TOKEN)
    fields = {"queue": "orders", "chosen": ["m0", "m1"], "what": "cancel"}
    assert reader.submit("/", "/do/messages", **fields).status_code == 403
    assert "refused: read-only" in caplog.text
    writer = visit(write=True)
    assert writer.post("/do/messages", fields).status_code == 403, "no token"
    token = writer.form_token(PENDING)
    evil = writer.post("/do/messages", {**fields, "form_token": token}, origin="http://evil.example")
    assert evil.status_code == 403
    assert five.counts().pending == 4


def test_each_message_has_the_action_in_its_story_and_the_log_names_all(five, visitor, caplog):
    caplog.set_level(logging.INFO)
    five.kill("m4")
    (dead,) = five.dead.list().messages
    choose(visitor, PENDING, "/do/messages", ["m0", "m1", "gone"], what="cancel")
    choose(visitor, DEAD, "/do/dead", [dead.entry], what="purge")
    acted = [(event.id, event.holder, event.reason) for event in five.events() if event.kind == "audit"]
    assert acted == [
        ("m0", "local", "cancel: cancelled"),
        ("m1", "local", "cancel: cancelled"),
        ("gone", "local", "cancel: was gone"),
        ("m4", "local", "purge: purged"),
    ]
    (first, _) = [record for record in caplog.records if record.name == "delayq.audit"]
    assert first.fields["chosen"] == "m0,m1,gone"
    assert first.outcome == "2 cancelled, 1 was gone."
