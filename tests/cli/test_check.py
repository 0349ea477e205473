"""`delayq check`: whether today's functions could process what waits; and a deploy of new tasks beside old workers."""

from __future__ import annotations

import signal
from collections import Counter

import pytest

from delayq import DelayQueue, NewMessage
from tests.cli.conftest import Start
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(180)

APP = """
from delayq import {kind}

queue = {kind}("billing", url={url!r})

@queue.task(aliases=["warn"])
def remind(user: int, text: str = ""): raise SystemExit("it must not run")

@queue.on("invoice.")
def file_away(message): raise SystemExit("it must not run")
"""


@pytest.fixture
def queue(redis_url):
    with DelayQueue("billing", url=redis_url) as queue:
        yield queue


@pytest.fixture(params=["DelayQueue", "AsyncDelayQueue"])
def app(request, tmp_path, monkeypatch, redis_url):
    """The name of a program with tasks, in this folder."""
    monkeypatch.syspath_prepend(tmp_path)
    name = f"app_{tmp_path.name}_{request.param}".lower()
    (tmp_path / f"{name}.py").write_text(APP.format(kind=request.param, url=redis_url))
    return name


def test_all_that_waits_fits_and_nothing_runs(cli, queue, app):
    queue.send_many([NewMessage({"user": 1}, "1h", name="remind"), NewMessage({"user": 1}, name="warn")])
    queue.send_delay_msg(5, name="invoice.paid")

    ended = cli("check", f"{app}:queue")

    assert (ended.code, ended.out, ended.err) == (0, "", "3 messages checked, 0 that no function takes\n")
    assert queue.counts().living == 3
    assert cli("check", app, "--json").json == {"right": True, "checked": 3, "problems": []}


def test_what_a_limit_holds_back_is_checked(cli, queue, app):
    queue.pause(name="remind")
    queue.send_delay_msg({"user": "no number"}, id="held", name="remind")
    assert len(queue.lease().messages) == 0
    assert queue.counts().throttled == 1
    (problem,) = cli("check", f"{app}:queue", "--json").json["problems"]
    assert problem["ids"] == ["held"]


def test_what_no_function_takes_is_counted_by_reason_with_some_ids(cli, queue, app, redis_client):
    queue.callback(lambda message: False)
    queue.send_delay_msg({"user": "geheim"}, retries=0, id="dead", name="remind")
    queue.run(burst=True)
    queue.send_many(
        [
            *(NewMessage({"user": "geheim"}, "1h", id=f"u-{n}", name="remind") for n in range(3)),
            NewMessage({"user": 1, "geheim": "red"}, id="c", name="remind"),
            NewMessage({}, id="l", name="letter"),
            NewMessage({}, id="plain"),
            NewMessage({"user": 1}, id="torn", name="remind"),
        ]
    )
    redis_client.hset("delayq:{billing}:messages", "torn", b"{geheim")

    ended = cli("check", f"{app}:queue", "--json")

    assert ended.code == 4
    assert (ended.json["right"], ended.json["checked"]) == (False, 8)
    first, *others = ended.json["problems"]
    assert first | {"ids": set(first["ids"])} == {
        "queue": "billing",
        "reason": "task remind does not take these arguments: Expected `int`, got `str` - at `$.user`",
        "count": 4,
        "dead": 1,
        "ids": {"u-0", "u-1", "u-2"},
    }
    assert {(one["reason"].split(":")[0], one["count"], *one["ids"]) for one in others} == {
        ("task remind does not take these arguments", 1, "c"),
        ("no handler for messages with the name letter", 1, "l"),
        ("no handler for this message", 1, "plain"),
        ("undecodable", 1, "torn"),
    }
    table = cli("check", f"{app}:queue")
    assert table.code == 4
    assert table.err == "8 messages checked, 8 that no function takes\n"
    assert table.out.splitlines()[0] == (
        "billing  4, 1 dead  task remind does not take these arguments: Expected `int`, got `str` - at `$.user`"
        "  (u-0, u-1, u-2, …)"
    )
    assert "geheim" not in table.out + ended.out


@pytest.mark.long
def test_wrong_use_is_one_line(cli, app, tmp_path, redis_url):
    (tmp_path / f"{app}_stream.py").write_text(
        f"from delayq.streams import StreamQueue\nqueue = StreamQueue('s', url={redis_url!r}, callback=print)\n"
    )
    (tmp_path / f"{app}_away.py").write_text(
        "from delayq import DelayQueue\n"
        "queue = DelayQueue('s', url='unix:///nowhere.sock', callback=print, deadline='1s')\n"
    )
    (tmp_path / f"{app}_idle.py").write_text("from delayq import DelayQueue\nqueue = DelayQueue('s')\n")
    for arguments, code, text in (
        ((), 2, "Missing argument"),
        (("no_such_module_",), 2, "no_such_module_"),
        ((f"{app}:other",), 2, "other"),
        ((f"{app}_stream",), 2, "a stream has no names of messages: check reads delay queues"),
        ((f"{app}_idle",), 2, "has no callback"),
        ((f"{app}_away",), 69, "nowhere.sock"),
    ):
        ended = cli("check", *arguments)
        assert (ended.code, text in ended.line) == (code, True), (arguments, ended)


OLD = """
import sys, time
from delayq import DelayQueue
queue = DelayQueue("billing", concurrency=4)
def note(name, user):
    with open("done", "a") as done: done.write(f"{VERSION} {name} {user}\\n")
@queue.task
def remind(user: int): note("remind", user)
"""
NEW = (
    OLD.replace("def remind(user: int): ", "def remind(user: int, channel: str = 'mail'): ")
    + """
@queue.task(name="billing.charge", aliases=["charge"])
def charge(user: int): note("charge", user)
"""
)


@pytest.mark.long
def test_a_worker_of_old_code_among_new_ones_loses_nothing(start: Start, queue, tmp_path):
    """Default options; both kinds of message come all the time, and the old worker leaves what it does not know."""
    for name, text in (("old", OLD), ("new", NEW)):
        (tmp_path / f"{name}.py").write_text(text.replace("{VERSION}", name))
    workers = [start("worker", "old:queue"), start("worker", "new:queue")]
    for worker in workers:
        worker.says("consuming billing")
    sent = Counter()
    for user in range(60):
        plain, more = {"user": user}, {"user": user, "channel": "sms"}
        for name, payload in (("remind", plain if user % 2 else more), ("charge", plain), ("billing.charge", plain)):
            queue.send_delay_msg(payload, name=name)
            sent[name.removeprefix("billing."), user] += 1
    old, new = workers
    wait_until(lambda: queue.stats().totals.get("released", 0) > 0, 60)  # the old one has got what it does not know
    old.signal(signal.SIGTERM)
    wait_until(lambda: queue.counts().living == 0, 60)
    new.signal(signal.SIGTERM)
    assert [old.ends(), new.ends()] == [0, 0]

    rows = [row.split() for row in (tmp_path / "done").read_text().splitlines()]
    assert Counter((name, int(user)) for _, name, user in rows) == sent
    assert {version for version, name, _ in rows if name == "charge"} == {"new"}
    totals = queue.stats().totals
    assert (totals.get("dead", 0), totals.get("nacked", 0)) == (0, 0)
