"""The actions of the dashboard: what each does in Redis, who may, and what the log says of it."""

from __future__ import annotations

import logging
import re
from datetime import UTC, datetime, timedelta
from html import unescape

import msgspec
import pytest
from markupsafe import escape

from delayq import DelayQueue, State
from delayq.web import Viewer
from tests.support.visitor import text_of

TOKEN = "a-token-of-24-characters"


@pytest.fixture
def visitor(visit):
    return visit(write=True)


def test_pause_and_resume(full, visitor):
    page = "/queue?queue=orders"
    shown = visitor.submit(page, "/do/pause", queue="orders", duration="2h", reason="the bank")
    assert "Paused orders until" in text_of(shown)
    assert full.counts().paused.reason == "the bank"
    assert full.counts().paused.until is not None
    assert "Resumed orders." in text_of(visitor.submit(page, "/do/pause", queue="orders", end="yes"))
    assert full.counts().paused is None
    assert "Resumed" not in text_of(visitor.get(page))


def test_reschedule_cancel_and_kill(full, visitor):
    page = "/message?queue=orders&id=waits"
    before = full.get("waits").due
    assert "rescheduled." in text_of(visitor.submit(page, "/do/reschedule", queue="orders", id="waits", delay="5h"))
    assert (full.get("waits").due - before).total_seconds() > 3 * 3600
    killed = visitor.submit(page, "/do/kill", queue="orders", id="waits")
    assert ": killed." in text_of(killed)
    assert "dead" in text_of(killed)
    assert (full.get("waits").state, full.get("waits").reason) == (State.DEAD, "killed")
    assert "failed: cancelled." in text_of(visitor.submit(page, "/do/cancel", queue="orders", id="failed"))
    assert full.get("failed") is None


@pytest.mark.parametrize("at", ["2031-01-31T09:00", "2031-01-31T09:00:00", "2031-01-31T10:00+01:00"])
def test_reschedule_to_an_exact_time(full, visitor, at):
    page = "/message?queue=orders&id=waits"
    shown = visitor.submit(page, "/do/reschedule", queue="orders", id="waits", delay="", at=at)
    assert "waits: rescheduled." in text_of(shown)
    assert full.get("waits").due == datetime(2031, 1, 31, 9, tzinfo=UTC)


def form_of(visitor, page):
    """Return the fields of the form that edits the message of a page."""
    form = re.search(r'action="[^"]*/do/edit".*?</form>', visitor.get(page).text, re.DOTALL)[0]
    fields = dict(re.findall(r'name="(\w+)" value="([^"]*)"', form))
    area = re.search(r'<textarea name="payload".*?>\n?(.*?)</textarea>', form, re.DOTALL)
    fields |= {"payload": unescape(area[1])} if area else {}
    return {name: unescape(value) for name, value in fields.items() if name not in ("form_token", "page_query")}


def test_edit_changes_the_message_where_it_waits(full, visitor, caplog):
    page = "/message?queue=orders&id=waits"
    fields, before = form_of(visitor, page), full.get("waits")
    assert msgspec.json.decode(fields["payload"]) == before.payload
    with caplog.at_level(logging.INFO, "delayq.audit"):
        shown = visitor.submit(
            page, "/do/edit", **fields | {"payload": '{"secret": 7}', "name": "mail", "priority": "3"}
        )
    assert "waits: edited." in text_of(shown)
    after = full.get("waits")
    assert (after.payload, after.name, after.priority, after.due) == ({"secret": 7}, "mail", 3, before.due)
    assert "edit" in caplog.text
    assert "secret" not in caplog.text
    assert "waits: as it was." in text_of(visitor.submit(page, "/do/edit", **form_of(visitor, page)))


def test_edit_of_what_has_changed_meanwhile_changes_nothing(full, visitor):
    page = "/message?queue=orders&id=waits"
    fields = form_of(visitor, page)
    full.edit("waits", payload="another's")
    shown = visitor.submit(page, "/do/edit", **fields | {"payload": "7"})
    assert "waits: changed." in text_of(shown)
    assert full.get("waits").payload == "another's"


@pytest.mark.parametrize(
    ("entries", "error"),
    [
        ({"payload": "{"}, '"Payload" must be JSON'),
        ({"priority": "high"}, '"Priority" must be a number from -100 to 100'),
        ({"priority": "101"}, '"Priority" must be'),
        ({"name": "a b"}, '"Name" must be 1 to 128 of'),
    ],
)
def test_edit_with_a_wrong_entry_shows_the_form_again(full, visitor, entries, error):
    page = "/message?queue=orders&id=waits"
    before = full.get("waits")
    shown = visitor.submit(page, "/do/edit", **form_of(visitor, page) | entries)
    assert error in text_of(shown)
    assert full.get("waits") == before


def test_a_payload_that_is_no_text_is_not_edited_here(queue, visitor):
    with DelayQueue("orders", codec="bytes", redis=queue.executor.client) as raw:
        raw.send_delay_msg(b"\xff\xfe", "1h", id="bytes")
        page = "/message?queue=orders&id=bytes"
        assert "This payload cannot be edited here." in text_of(visitor.get(page))
        shown = visitor.submit(page, "/do/edit", **form_of(visitor, page) | {"priority": "5"})
        assert "bytes: edited." in text_of(shown)
        assert (raw.get("bytes").payload, raw.get("bytes").priority) == (b"\xff\xfe", 5)


def test_cancel_what_runs(queue, visitor):
    queue.send_delay_msg(1, id="runs")
    with queue.lease("10s") as message:
        page = "/message?queue=orders&id=runs"
        assert "Ask it to stop" in visitor.get(page).text
        stopped = visitor.submit(page, "/do/cancel", queue="orders", id="runs", running="yes")
        assert "runs: asked to stop." in text_of(stopped)
        killed = visitor.submit(page, "/do/kill", queue="orders", id="runs")
        assert "runs: was running." in text_of(killed)
        assert "cancel requested" in text_of(stopped)
        message.ack()


def test_redrive_one_a_group_and_all(full, visitor):
    page = "/dead?queue=orders"
    (group,) = [one for one in full.dead.groups() if one.reason == "no such customer"]
    done = visitor.submit(page, "/do/redrive", queue="orders", group=group.group, rate="5/s")
    assert "Sent 1 message again." in text_of(done)
    assert (full.get("rejected").state, full.counts().dead) == (State.READY, 1)
    (spent,) = full.dead.list().messages
    assert "Sent 1 message again." in text_of(visitor.submit(page, "/do/redrive", queue="orders", entry=spent.entry))
    full.kill("spent")
    full.kill("rejected")
    full.kill("waits")
    assert "Sent 3 messages again." in text_of(visitor.submit(page, "/do/redrive", queue="orders", all="yes"))
    assert full.counts().dead == 0


def test_pages_have_forms_only_for_those_who_may_act(full, visit):
    for page in (
        "/queue?queue=orders",
        "/message?queue=orders&id=waits",
        "/message?queue=orders&id=spent",
        "/dead?queue=orders",
    ):
        assert "/do/" not in visit().get(page).text, page
        assert "/do/" in visit(write=True).get(page).text, page


def test_read_only_refuses_actions(full, visit, caplog):
    caplog.set_level(logging.INFO)
    only = [Viewer("ada", token=TOKEN, write=False)]
    for visitor in (visit(token=TOKEN), visit(viewers=only, write=True)):
        visitor.submit("/login", "/login", token=TOKEN)
        reply = visitor.submit("/", "/do/cancel", queue="orders", id="waits")
        assert reply.status_code == 403
        assert "read-only" in text_of(reply)
    assert full.get("waits").state is State.PENDING
    assert "ada: cancel queue=orders id=waits: refused: read-only" in caplog.text


def test_form_of_another_session_or_website_is_refused(full, visit, visitor):
    fields = {"queue": "orders", "id": "waits"}
    token = visitor.form_token("/queue?queue=orders")
    stranger = visit(write=True)
    stranger.get("/")
    assert stranger.post("/do/cancel", {**fields, "form_token": token}).status_code == 403
    assert visitor.post("/do/cancel", fields).status_code == 403
    refused = visitor.post("/do/cancel", {**fields, "form_token": token}, origin="http://evil.example")
    assert refused.status_code == 403
    assert visitor.get("/do/cancel").status_code == 405
    assert full.get("waits").state is State.PENDING
    assert visitor.post("/do/cancel", {**fields, "form_token": token}).status_code == 303
    assert full.get("waits") is None


def test_queue_of_others_cannot_be_changed(full, visit):
    visitor = visit(viewers=[Viewer("ada", ["mails"], token=TOKEN)], write=True)
    visitor.submit("/login", "/login", token=TOKEN)
    assert visitor.submit("/", "/do/cancel", queue="orders", id="waits").status_code == 404
    assert full.get("waits").state is State.PENDING


@pytest.mark.table(
    "action, fields, error",
    [
        ("pause", {"duration": "soon", "reason": "<b>"}, "\"Pause for\" must look like '1h30m'"),
        ("pause", {"name": "sms", "reason": "x" * 201}, '"Reason" must be one line'),
        ("reschedule", {"id": "waits", "delay": "soon"}, "\"Due in\" must look like '1h30m'"),
        ("reschedule", {"id": "waits", "at": "noon"}, '"Due at (UTC)" must look like 2027-01-31T09:00'),
        ("reschedule", {"id": "waits", "at": "3000-01-01"}, '"Due at (UTC)" must lie between 1970 and 2199'),
        ("reschedule", {"id": "waits", "delay": "", "at": ""}, 'Give either "Due in" or "Due at (UTC)"'),
        ("reschedule", {"id": "waits", "delay": "1h", "at": "2030-01-01"}, 'Give either "Due in" or "Due at (UTC)"'),
        ("redrive", {"all": "yes", "rate": "fast"}, "\"Rate\" must look like '200/s'"),
        ("limit", {"name": "sms", "rate_limit": "fast"}, "\"Rate\" must look like '200/s'"),
        ("limit", {"name": "a b", "running": "5"}, '"Name" must be 1 to 128'),
        ("limit", {"name": "", "running": "many"}, '"At a time" must be a number'),
        ("limit", {"name": "sms"}, 'Give "Rate" or "At a time", or both'),
    ],
)
def test_wrong_entry_comes_back_in_its_form_with_what_is_wrong(full, visitor, action, fields, error):
    full.limits.set("sms", running=1)
    reply = visitor.submit("/queue?queue=orders", f"/do/{action}", queue="orders", **fields)
    assert reply.status_code == 400
    (form,) = [form for form in re.findall(r"<form.*?</form>", reply.text, re.DOTALL) if 'role="alert"' in form]
    assert error in unescape(form)
    assert f"/do/{action}" in form
    assert all(f'name="{name}" value="{escape(value)}"' in form for name, value in fields.items())
    assert form.count("aria-invalid") == (0 if error.startswith("Give") else 1)
    opened = re.findall(r"<details open>.*?</details>", reply.text, re.DOTALL)
    assert [form in one for one in opened] == ([] if action == "limit" else [True])


def test_refused_form_keeps_the_filter_of_its_page(full, visitor, caplog):
    caplog.set_level(logging.INFO)
    group = next(one.group for one in full.dead.groups() if one.reason == "no such customer")
    page = f"/dead?queue=orders&group={group}"
    (shown,) = set(re.findall(r'name="page_query" value="([^"]*)"', visitor.get(page).text))
    assert "Messages of this group" in text_of(visitor.get(page))
    wrong = {"queue": "orders", "all": "yes", "rate": "fast"}
    reply = visitor.submit(page, "/do/redrive", **wrong, page_query=unescape(shown))
    assert (reply.status_code, "Messages of this group" in text_of(reply)) == (400, True)
    assert re.findall(r'class="id" href="[^"]*">(\w+)<', reply.text) == ["rejected"]
    assert set(re.findall(r'name="page_query" value="([^"]*)"', reply.text)) == {shown}
    other = visitor.submit(page, "/do/redrive", **wrong, page_query=f"queue=mails&group={group}")
    assert "Dead letter · orders" in text_of(other)
    assert visitor.submit(page, "/do/redrive", **wrong, page_query="group=none").status_code == 400
    assert "page_query" not in caplog.text


def test_mended_form_is_taken(full, visitor):
    page = visitor.submit("/message?queue=orders&id=waits", "/do/reschedule", queue="orders", id="waits", delay="soon")
    (token,) = set(re.findall(r'name="form_token" value="([\w-]+)"', page.text))
    mended = {"queue": "orders", "id": "waits", "delay": "5h", "form_token": token}
    assert visitor.post("/do/reschedule", mended).status_code == 303


def test_wrong_fields_that_no_form_has_are_400(full, visitor):
    page = "/queue?queue=orders"
    for action, fields in [
        ("reschedule", {"id": "gone", "delay": "x"}),
        ("cancel", {"id": "\x00"}),
        ("redrive", {}),
        ("redrive", {"group": "x"}),
        ("schedule", {"name": "daily"}),
    ]:
        reply = visitor.submit(page, f"/do/{action}", queue="orders", **fields)
        assert (reply.status_code, "That did not work" in text_of(reply)) == (400, True), action
    assert visitor.submit(page, "/do/nothing", queue="orders").status_code == 404
    assert visitor.submit(page, "/do/schedule", queue="orders", name="x", what="run").status_code == 404


def test_every_action_is_logged_with_who_did_it(full, visit, caplog):
    caplog.set_level(logging.INFO)
    visitor = visit(viewers=[Viewer("ada", token=TOKEN)], write=True, client="10.0.0.7")
    visitor.submit("/login", "/login", token=TOKEN)
    visitor.submit("/", "/do/kill", queue="orders", id="waits")
    visitor.submit("/", "/do/reschedule", queue="orders", id="failed", delay="\x1b[31mx")
    killed, failed = [record for record in caplog.records if record.name == "delayq.audit"]
    assert killed.getMessage() == "ada: kill queue=orders id=waits: waits: killed."
    assert (killed.viewer, killed.action, killed.queue, killed.client) == ("ada", "kill", "orders", "10.0.0.7")
    assert "failed: " in failed.outcome
    assert "\x1b" not in str(failed.fields)
    visitor.submit("/", "/do/kill", queue="orders", **{"x\nadmin: redrive": "1"})
    assert len(caplog.messages[-1].splitlines()) == 1
    assert TOKEN not in caplog.text


def test_actions_are_in_the_event_log(full, visit):
    visitor = visit(write=True)
    page = "/queue?queue=orders"
    visitor.submit(page, "/do/kill", queue="orders", id="waits")
    visitor.submit(page, "/do/reschedule", queue="orders", id="failed", delay="soon")
    visitor.submit(page, "/do/pause", queue="orders", reason="deploy")
    visitor.submit(page, "/do/pause", queue="orders", id="waits failed", entry="waits:1", end="yes")
    acted = [event for event in full.events() if event.kind == "audit"]
    assert [(event.id, event.holder, event.reason) for event in acted] == [
        ("waits", "local", "kill: waits: killed."),
        (None, "local", "pause reason=deploy: Paused orders until it is resumed."),
        (None, "local", "pause id=waits failed entry=waits:1 end=yes: Resumed orders."),
    ]
    (dead,) = (message for message in full.dead.list().messages if message.id == "waits")
    shown = visitor.submit("/dead?queue=orders", "/do/redrive", queue="orders", entry=dead.entry)
    story = text_of(visitor.get("/message?queue=orders&id=waits"))
    assert "by local, kill: waits: killed." in story
    assert f"by local, redrive entry={dead.entry}: Sent 1 message again." in story
    assert shown.status_code == 200


def test_limits_and_pauses_of_names(full, visitor):
    page = "/limits?queue=orders"
    assert "Limited mail of orders." in text_of(
        visitor.submit(page, "/do/limit", queue="orders", name="mail", rate_limit="5/s", running="2")
    )
    (limit,) = full.limits.list()
    assert (limit.name, limit.rate_limit, limit.running) == ("mail", "5/s", 2)
    assert "Paused mail of orders" in text_of(visitor.submit(page, "/do/pause", queue="orders", name="mail"))
    assert full.limits.list()[0].paused
    assert "Resumed mail" in text_of(visitor.submit(page, "/do/pause", queue="orders", name="mail", end="yes"))
    assert "Removed the limit" in text_of(visitor.submit(page, "/do/limit", queue="orders", name="mail", remove="yes"))
    assert full.limits.list() == []


def test_limit_that_keeps_the_order_of_keys(full, visitor):
    page = "/limits?queue=orders"
    assert "In order, for the keys of a name such as account:*" in text_of(visitor.get(page))
    done = visitor.submit(page, "/do/limit", queue="orders", name="account:*", in_order="yes")
    assert "Limited account:* of orders." in text_of(done)
    assert "account:* – 1 0 0 in order" in text_of(done)
    (limit,) = full.limits.list()
    assert (limit.name, limit.in_order) == ("account:*", True)
    visitor.submit(page, "/do/limit", queue="orders", name="tenant:*", running="3")
    assert {one.name: one.in_order for one in full.limits.list()} == {"account:*": True, "tenant:*": False}
    for fields, error in (
        ({"name": "mail"}, '"In order, for the keys of a name such as account:*" is for the keys of a template'),
        ({"name": "client:*", "running": "3"}, "runs one message of a key at a time"),
    ):
        refused = visitor.submit(page, "/do/limit", queue="orders", in_order="yes", **fields)
        assert (refused.status_code, error in text_of(refused)) == (400, True), fields
        assert 'name="in_order" value="yes" checked aria-invalid' in refused.text
    assert len(full.limits.list()) == 2


def test_schedules(full, visitor):
    full.schedules.add("daily", every="1d", payload=1)
    page = "/schedules?queue=orders"
    assert "Paused the schedule daily." in text_of(
        visitor.submit(page, "/do/schedule", queue="orders", name="daily", what="pause")
    )
    assert full.schedules.get("daily").state == "paused"
    visitor.submit(page, "/do/schedule", queue="orders", name="daily", what="pause", duration="2d")
    assert full.schedules.get("daily").paused_until > datetime.now(UTC) + timedelta(days=1)
    assert "paused until" in text_of(visitor.get(page))
    visitor.submit(page, "/do/schedule", queue="orders", name="daily", what="resume")
    assert full.schedules.get("daily").state == "active"
    refused = visitor.submit(page, "/do/schedule", queue="orders", name="daily", what="pause", duration="soon")
    assert (refused.status_code, "\"Pause for\" must look like '1h30m'" in text_of(refused)) == (400, True)
    sent = text_of(visitor.submit(page, "/do/schedule", queue="orders", name="daily", what="run"))
    assert "Sent daily@now:" in sent


def test_server_is_checked_at_the_first_action_only(full, visitor, caplog):
    for _ in range(3):
        visitor.submit("/queue?queue=orders", "/do/pause", queue="orders")
    warnings = [record for record in caplog.records if record.name == "delayq.doctor" and record.levelname == "WARNING"]
    before = 1  # that of the queue that has sent the messages
    assert len(warnings) <= before + 1
