"""Every way to look at a queue that no consumer has looked at: what is due is ready, and only the rest is pending."""

from __future__ import annotations

import json
import re
import uuid
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from delayq import DelayQueue, NewMessage
from delayq.cli.queues.top_screen import TopFigures, TopScreen
from delayq.cli.support.session import Session
from delayq.metrics import QueueCollector
from delayq.streams import StreamQueue
from delayq.web import web_app
from tests.cli.test_top import look
from tests.metrics.samples import samples_of
from tests.support.visitor import Visitor, text_of

DUE = ["due0", "due1", "due2"]
LATER = ["later0", "later1"]
NUMBERS = (len(DUE), len(LATER))


def fill(queue):
    past = datetime.now(UTC) - timedelta(minutes=1)
    queue.send_many([NewMessage({"find": "me"}, id=id, at=past) for id in DUE])
    queue.send_many([NewMessage({"find": "me"}, id=id, delay="1h") for id in LATER])


@pytest.fixture
def unseen(queue):
    """The queue `reminders` with three messages that are due, and two that are not."""
    fill(queue)
    return queue


def counted(states):
    found = Counter(map(str, states))
    assert set(found) <= {"ready", "pending"}
    return found["ready"], found["pending"]


OBJECTS = {
    "counts": lambda queue: (queue.counts().ready, queue.counts().pending),
    "counts of what is overdue": lambda queue: (queue.counts().overdue, queue.counts().living - queue.counts().overdue),
    "stats": lambda queue: (queue.stats().counts.ready, queue.stats().counts.pending),
    "list": lambda queue: tuple(len(queue.list(state).messages) for state in ("ready", "pending")),
    "list, by page": lambda queue: counted(
        message.state for state in ("ready", "pending") for message in queue.list(state, limit=50).messages
    ),
    "get": lambda queue: counted(queue.get(id).state for id in DUE + LATER),
    "select": lambda queue: (queue.select("ready").count(), queue.select("pending").count()),
    "select by id": lambda queue: (queue.select("ready", id_prefix="due").count(), queue.select(id_prefix="l").count()),
    "search": lambda queue: counted(match.message.state for match in queue.search("me").matches),
    "search by state": lambda queue: tuple(
        len(queue.search("me", state=state).matches) for state in ("ready", "pending")
    ),
    "forecast": lambda queue: (queue.forecast("2h").overdue, sum(one.pending for one in queue.forecast("2h").buckets)),
    "cancel": lambda queue: (
        queue.select("ready").cancel().get("cancelled"),
        queue.select("pending").cancel().get("cancelled"),
    ),
    "kill": lambda queue: (queue.select("ready").kill().get("killed"), queue.select("pending").kill().get("killed")),
    "run now": lambda queue: (queue.counts().ready, queue.select("pending").run_now().get("rescheduled")),
}


@pytest.mark.parametrize("state", ["new", "paused", "with priorities"])
@pytest.mark.parametrize("kind", ["redis", "embedded"])
@pytest.mark.parametrize("way", OBJECTS.values(), ids=OBJECTS)
def test_objects_call_ready_what_is_due(redis_url, kind, state, way):
    url = redis_url if kind == "redis" else f"memory://{uuid.uuid4().hex}"
    with DelayQueue("reminders", url=url) as queue:
        fill(queue)
        if state == "paused":
            queue.pause()
        elif state == "with priorities":
            queue.send_delay_msg("first", "1h", id="x", priority=1)
            queue.cancel("x")
        assert way(queue) == NUMBERS


def states_in(ended, found="messages"):
    return counted(one["state"] for one in ended.json[found])


def numbers(found):
    return found["ready"], found["pending"]


def forecast(found):
    return found["overdue"], sum(one["pending"] for one in found["buckets"])


COMMANDS = {
    "queues": lambda cli: numbers(cli("queues", "--json").json["queues"][0]),
    "queues, table": lambda cli: tuple(map(int, re.search(r"reminders +(\d+) +(\d+)", cli("queues").out).groups()))[
        ::-1
    ],
    "stats": lambda cli: numbers(cli("stats", "reminders", "--json").json),
    "stats, table": lambda cli: tuple(
        int(re.search(rf"^{state} +(\d+)", cli("stats", "reminders").out, re.MULTILINE)[1])
        for state in ("ready", "pending")
    ),
    "list": lambda cli: states_in(cli("list", "reminders", "--json")),
    "list, table": lambda cli: counted(re.findall(r" (ready|pending) ", cli("list", "reminders").out)),
    "list by state": lambda cli: tuple(
        len(cli("list", "reminders", "--state", state, "--json").json["messages"]) for state in ("ready", "pending")
    ),
    "list of a period": lambda cli: tuple(
        len(cli("list", "reminders", *period, "--json").json["messages"])
        for period in (("--to", "now"), ("--from", "now"))
    ),
    "show": lambda cli: counted(cli("show", "reminders", id, "--json").json["state"] for id in DUE + LATER),
    "show, text": lambda cli: counted(
        re.search(r"^state +(\w+)", cli("show", "reminders", id).out, re.MULTILINE)[1] for id in DUE + LATER
    ),
    "search": lambda cli: states_in(cli("search", "reminders", "me", "--json"), "matches"),
    "export": lambda cli: counted(json.loads(line)["state"] for line in cli("export", "reminders").out.splitlines()),
    "export by state": lambda cli: tuple(
        len(cli("export", "reminders", "--state", state).out.splitlines()) for state in ("ready", "pending")
    ),
    "cancel": lambda cli: tuple(
        cli("cancel", "reminders", "--state", state, "--yes", "--json").json["outcomes"]["cancelled"]
        for state in ("ready", "pending")
    ),
    "cancel, dry run": lambda cli: tuple(
        cli("cancel", "reminders", "--state", state, "--dry-run", "--json").json["matched"]
        for state in ("ready", "pending")
    ),
    "metrics": lambda cli: tuple(
        int(
            float(
                re.search(rf'^delayq_messages{{.*state="{state}"}} (\S+)', cli("metrics", "--once").out, re.MULTILINE)[
                    1
                ]
            )
        )
        for state in ("ready", "pending")
    ),
    "forecast": lambda cli: forecast(cli("forecast", "reminders", "--json", "--until", "2h").json),
    "health": lambda cli: (cli("health", "reminders", "--json").json["overdue"], len(LATER)),
    "doctor": lambda cli: (
        next(
            one["count"]
            for one in cli("doctor", "reminders", "--json").json["findings"]
            if one["kind"] == "due, and nobody consumes"
        ),
        len(LATER),
    ),
}


@pytest.mark.parametrize("way", COMMANDS.values(), ids=COMMANDS)
def test_commands_call_ready_what_is_due(cli, unseen, way):
    assert way(cli) == NUMBERS


def test_top_shows_what_is_due(redis_url, unseen):
    session = Session(redis_url, "delayq", None)
    screen = TopScreen(TopFigures(session, session.queue_names), session)
    screen.read()
    row = next(line.split() for line in look(screen) if line.startswith("reminders"))
    session.close()
    assert row[1:3] == ["2", "3"]  # pending, due


def test_metrics_call_ready_what_is_due(unseen, redis_url):
    found = samples_of(QueueCollector("reminders", url=redis_url))
    assert (
        tuple(found[f'delayq_messages{{queue="reminders",state="{state}"}}'] for state in ("ready", "pending"))
        == NUMBERS
    )


def test_dashboard_calls_ready_what_is_due(unseen, redis_url):
    app = web_app(url=redis_url)
    visitor = Visitor(app)
    try:
        queue = text_of(visitor.get("/queue?queue=reminders"))
        lists = [text_of(visitor.get(f"/messages?queue=reminders&state={state}")) for state in ("ready", "pending")]
        pages = [text_of(visitor.get(f"/message?queue=reminders&id={id}")) for id in (DUE[0], LATER[0])]
    finally:
        app.state.site.source.close()
    assert "3 ready" in queue
    assert "2 pending" in queue
    assert [sum(id in page for id in DUE + LATER) for page in lists] == list(NUMBERS)
    assert ["ready" in page.split() for page in pages] == [True, False]


@pytest.mark.parametrize("kind", ["redis", "embedded"])
def test_streams_call_ready_what_was_sent(redis_url, kind):
    with StreamQueue("tasks", url=redis_url if kind == "redis" else f"memory://{uuid.uuid4().hex}") as tasks:
        tasks.send_many(range(3))
        found = tasks.list("ready").messages
        assert tasks.counts().ready == tasks.counts().living == len(found) == 3
        assert {str(tasks.get(one.entry).state) for one in found} == {"ready"}
