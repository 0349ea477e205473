"""`delayq queues`, `stats`, `list` and `show`: output for people and as JSON."""

import base64
import json
import re
import signal
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from delayq import ConfigurationError, DelayQueue, NewMessage, State
from delayq.cli.support.session import Session
from delayq.queue.inspecting.readings import READ_TOGETHER
from tests.cli.conftest import PATIENCE
from tests.support.waiting import wait_until

EVIL = "evil \x1b[31mred\x1b[0m\x1b]0;title\x07\x9b2J\u202egnp\x08!"
HARMLESS = "evil redgnp!"

MESSAGE_KEYS = {
    "id", "state", "payload", "encoding", "truncated", "size", "due", "attempts", "retries_left", "deadline",
    "token", "consumer", "headers", "error", "reason", "died", "entry", "name", "key", "snoozes", "expires",
    "priority", "timeout", "cancel_requested", "progress", "retention", "completed", "kept_until", "result", "sent",
    "unhandled", "hours", "tz", "group",
}  # fmt: skip


@pytest.fixture
def populated(queue):
    """One message in each state (but garbage): p, r, a, b, y, d."""
    for id in "rabyd":
        queue.send_delay_msg({"of": id}, id=id)
    queue.send_delay_msg({"of": "p"}, "3h", id="p", headers={"trace": "t-1"})
    held = {message.id: message for message in queue.lease(n=5)}
    held["r"].release()
    held["b"].nack(delay=3600, error="ConnectionError: refused")
    held["d"].reject("no such user")
    held["y"].nack(delay=0, error="ValueError: again")

    # A consumer does this every tick; here it is done without one.
    expire = queue.context.calls.unack_to_retry
    wait_until(lambda: queue.executor.call(expire()).retried, PATIENCE, "the message y in retry")
    return queue


def test_says_why_a_message_comes_back_that_no_worker_takes(cli, queue):
    queue.send_delay_msg(1, id="m", name="letter.sent")
    queue.on("invoice.sent")(print)
    queue.run(burst=True)
    why = "sent back 1 time: no function of the worker takes it, as its log says"
    assert cli("list", "reminders", "--state", "backoff").out.splitlines()[1].endswith(why)
    assert why in cli("show", "reminders", "m").out
    assert cli("show", "reminders", "m", "--json").json["unhandled"] == 1


# queues


def test_notes_that_there_are_no_queues(cli):
    ended = cli("queues")
    assert (ended.code, ended.out) == (0, "")
    assert ended.err.startswith("no queues with the prefix 'delayq'")
    assert cli("queues", "--json").json == {"queues": []}


def test_lists_the_queues_in_use(cli, redis_url, populated):
    with DelayQueue("mails", url=redis_url) as mails:
        mails.send_delay_msg(1, "1h")
    ended = cli("queues")
    lines = [line.split() for line in ended.out.splitlines()]
    assert lines[0] == [
        "queue",
        "pending",
        "ready",
        "active",
        "backoff",
        "retry",
        "dead",
        "overdue",
        "lag",
        "next",
        "due",
    ]
    assert lines[1][:7] == ["mails", "1", "0", "0", "0", "0", "0"]
    assert lines[2][:7] == ["reminders", "1", "1", "1", "1", "1", "1"]
    assert lines[2][7] == "2"
    assert lines[2][-2:] == ["in", "3h"]
    mails, reminders = cli("queues", "--json").json["queues"]
    assert set(mails) == {
        "queue", "pending", "ready", "active", "backoff", "retry", "throttled", "garbage", "dead", "completed",
        "next_due", "oldest_due", "overdue", "lag", "nobody_consumes", "paused", "paused_names",
    }  # fmt: skip
    assert (mails["queue"], mails["oldest_due"], reminders["dead"]) == ("mails", None, 1)
    assert datetime.fromisoformat(reminders["next_due"]).utcoffset().total_seconds() == 0


def test_reads_each_name_in_the_registry_once(cli, redis_url, redis_client, populated):
    def calls(command):
        return redis_client.info("commandstats").get(f"cmdstat_{command}", {"calls": 0})["calls"]

    assert len(cli("queues").out.splitlines()) == 2
    redis_client.sadd("delayq:queues", *(f"foreign-{n}" for n in range(9)))
    before = {command: calls(command) for command in ("evalsha", "exists")}
    assert len(cli("queues").out.splitlines()) == 2
    assert {command: calls(command) - number for command, number in before.items()} == {"evalsha": 10, "exists": 0}


def test_many_queues_take_few_round_trips(redis_url, monkeypatch):
    with DelayQueue("one", url=redis_url) as one:
        one.send_delay_msg(1)
    session = Session(redis_url, "delayq", None)
    asked = []
    run = session.executor.run
    monkeypatch.setattr(session.executor, "run", lambda requests: asked.append(len(requests)) or run(requests))
    found = session.stats(["one", *(f"foreign-{n}" for n in range(2 * READ_TOGETHER))])
    session.close()
    assert ([*found], asked) == (["one"], [READ_TOGETHER, READ_TOGETHER, 1])


def test_lists_all_states_that_any_queue_has_and_the_names_that_are_paused(cli, redis_url, populated):
    with DelayQueue("mails", url=redis_url, callback=lambda message: None, retention="1h") as mails:
        mails.send_many([NewMessage(1, name="letter"), NewMessage(2, name="card")])
        mails.pause(name="card", reason="no stamps")
        mails.run(burst=True)
    lines = cli("queues").out.splitlines()
    assert lines[0].split()[:9] == (
        ["queue", "pending", "ready", "active", "backoff", "retry", "throttled", "dead", "completed"]
    )
    assert lines[1].split()[:9] == ["mails", "0", "0", "0", "0", "0", "1", "0", "1"]
    assert lines[2].split()[:9] == ["reminders", "1", "1", "1", "1", "1", "0", "1", "0"]
    assert "mails card: paused until it is resumed: no stamps" in lines[3:]
    mails, reminders = cli("queues", "--json").json["queues"]
    assert mails["paused_names"] == {"card": {"until": None, "reason": "no stamps"}}
    assert reminders["paused_names"] == {}


@pytest.mark.parametrize("key", ["pending", "limits"])
def test_lists_the_other_queues_if_one_cannot_be_read(cli, redis_url, redis_client, populated, key):
    with DelayQueue("mails", url=redis_url) as mails:
        mails.send_delay_msg(1, "1h")
        mails.limits.set(rate_limit="1/s")
    redis_client.delete(f"delayq:{{mails}}:{key}")
    redis_client.set(f"delayq:{{mails}}:{key}", "x")
    ended = cli("queues")
    lines = ended.out.splitlines()
    assert (ended.code, ended.err) == (1, "")
    assert lines[1].split()[:7] == ["reminders", "1", "1", "1", "1", "1", "1"]
    (line,) = [line for line in lines if line.startswith("mails")]
    assert line.startswith("mails: ")
    assert "WRONGTYPE" in line
    ended = cli("queues", "--json")
    mails, reminders = ended.json["queues"]
    assert (ended.code, set(mails), reminders["pending"]) == (1, {"queue", "error"}, 1)
    assert "WRONGTYPE" in mails["error"]


def test_lists_the_queues_of_a_prefix(cli, redis_url):
    with DelayQueue("other", url=redis_url, prefix="shop") as queue:
        queue.send_delay_msg(1)
    assert cli("queues", "--json").json == {"queues": []}
    assert [found["queue"] for found in cli("--prefix", "shop", "queues", "--json").json["queues"]] == ["other"]
    assert cli("--prefix", "shop", "stats", "other").code == 0


# stats


def test_stats_prints_the_counts_of_a_queue(cli, populated):
    out = cli("stats", "reminders").out
    for line in (r"pending +1  next due in 3h  \(.* UTC\)", r"overdue +2  oldest due .*", r"dead +1", r"sent +6"):
        assert re.search(rf"^{line}$", out, re.MULTILINE), out
    found = cli("stats", "reminders", "--json").json
    states = {state: found[state] for state in State}
    assert states == dict.fromkeys(State, 1) | {"throttled": 0, "garbage": 0, "completed": 0}
    assert (found["queue"], found["living"], found["totals"]["sent"]) == ("reminders", 5, 6)
    assert {"at", "next_due", "oldest_due", "next_deadline"} <= set(found)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", found["at"])


def test_stats_of_what_is_overdue_names_the_limits_of_the_queue(cli, populated):
    hint = "the queue has limits: delayq limits list reminders"
    assert hint not in cli("stats", "reminders").out
    populated.limits.set(rate_limit="1/h")
    assert hint in cli("stats", "reminders").out


def test_says_that_messages_are_due_and_nobody_consumes(cli, redis_url, queue):
    past = datetime.now(UTC) - timedelta(minutes=15)
    queue.send_many(NewMessage(n, at=past) for n in range(3))
    with DelayQueue("others", url=redis_url) as other:
        other.send_delay_msg(1, "1h")
    text = r"due, and nobody consumes: 3 messages, the first for 15m( \d+s)?; start a worker"
    assert re.search(rf"^reminders: {text}$", cli("queues").out, re.MULTILINE)
    assert "others:" not in cli("queues").out
    assert re.search(rf"^{text}$", cli("stats", "reminders").out, re.MULTILINE)
    found = cli("stats", "reminders", "--json").json
    assert (found["overdue"], found["nobody_consumes"]) == (3, True)
    assert found["lag"] > 899


@pytest.mark.long
def test_stats_tells_the_memory_of_each_structure(cli, populated):
    found = populated.memory_usage()
    (stats,) = [cli("stats", "reminders", "--memory", "--json").json]
    assert stats["memory"] == {"total": found.total, "structures": found.structures, "unknown": []}
    assert found.structures["messages"] > 100
    assert list(found.structures.values()) == sorted(found.structures.values(), reverse=True)
    assert "results" not in found.structures
    lines = [line.split() for line in cli("stats", "reminders", "--memory").out.splitlines()]
    assert ["total", f"{found.total:,}"] in lines
    assert ["messages", f"{found.structures['messages']:,}"] in lines
    for samples in (-1, 1001, "all"):
        with pytest.raises(ConfigurationError, match="samples must be"):
            populated.memory_usage(samples)


def test_stats_tells_the_memory_only_where_it_is_known(cli, queue):
    queue.send_delay_msg(1)
    assert "does not go with --watch" in cli("stats", "reminders", "--memory", "--watch").line
    assert "for delay queues" in cli("stats", "reminders", "--memory", "--engine", "streams").line
    with DelayQueue("reminders", url="memory://sizes") as embedded:
        embedded.send_delay_msg(1)
        ended = cli("--url", "memory://sizes", "stats", "reminders", "--memory")
        assert (ended.code, "MEMORY" in ended.line) == (1, True)


def test_stats_watch_runs_until_ctrl_c(start, queue):
    queue.send_delay_msg(1, "1h")
    program = start("stats", "reminders", "--watch", "--json", "--every", "100ms")
    program.until(lambda: program.out.count("\n") >= 2, "two results")
    queue.send_delay_msg(2, "1h")
    program.until(lambda: '"pending":2' in program.out, "the second message")
    program.signal(signal.SIGINT)
    ended = program.ended()
    assert (ended.code, ended.err) == (0, "")
    assert all(json.loads(line)["queue"] == "reminders" for line in ended.out.splitlines())


@pytest.mark.long
def test_stats_watch_prints_plain_text_without_a_terminal(start, queue):
    queue.send_delay_msg(1, "1h")
    program = start("stats", "reminders", "--watch", "--every", "100ms")
    program.until(lambda: program.out.count("pending") >= 2, "two results")
    program.signal(signal.SIGINT)
    assert program.ends() == 0
    assert "\x1b" not in program.out


def test_stats_watch_redraws_in_place_on_a_terminal(cli, queue, monkeypatch):
    queue.send_delay_msg(1, "1h")
    pauses = []

    def pause(seconds):
        pauses.append(seconds)
        if len(pauses) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("delayq.cli.queues.stats.time", SimpleNamespace(sleep=pause))
    env = {"FORCE_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": "80"}
    ended = cli("stats", "reminders", "--watch", "--every", "2s", env=env)
    assert (ended.code, pauses) == (0, [2, 2, 2])
    assert "\x1b[1A" in ended.out  # back up to the first line
    assert "next due in 1h" in ended.out


@pytest.mark.long
def test_watch_ends_when_redis_stops(start, start_redis):
    server = start_redis()
    with DelayQueue("reminders", url=server.url) as queue:
        queue.send_delay_msg(1, "1h")
    program = start("--timeout", "200ms", "stats", "reminders", "--watch", "--json", "--every", "100ms", url=server.url)
    program.until(lambda: program.out, "a result")
    server.stop()
    ended = program.ended()
    assert ended.code == 69
    assert "No such file" in ended.line


# list


@pytest.mark.parametrize(
    ("state", "titles", "cells"),
    [
        ("pending", "id due retries payload", ["p", "in", "3h", "3", '{"of":"p"}']),
        ("ready", "id due attempts retries payload", ["r", "0", "3", '{"of":"r"}']),
        ("active", "id lease ends attempts consumer payload", ["a", "in", "1", '{"of":"a"}']),
        ("backoff", "id next try attempts retries error", ["b", "in", "1", "2", "ConnectionError:", "refused"]),
        ("retry", "id due attempts retries error", ["y", "1", "2", "ValueError:", "again"]),
        ("dead", "id died attempts reason error", ["d", "1", "no", "such", "user"]),
    ],
)
def test_lists_the_messages_in_a_state(cli, populated, state, titles, cells):
    ended = cli("list", "reminders", "--state", state)
    head, row = ended.out.splitlines()
    assert head.split() == titles.split()
    left = row.split()
    assert left[0] == cells[0]
    assert [cell for cell in left if cell in cells] == cells
    (page,) = [cli("list", "reminders", "--state", state, "--json").json]
    (message,) = page["messages"]
    assert page["cursor"] is None
    assert set(message) == MESSAGE_KEYS
    assert (message["id"], message["state"], message["payload"]) == (cells[0], state, {"of": cells[0]})


def test_lists_the_names_of_messages_if_one_has_a_name(cli, populated):
    populated.send_delay_msg(1, "4h", id="n", name="send_mail")
    head, unnamed, named = (line.split() for line in cli("list", "reminders", "--state=pending").out.splitlines())
    assert (head[:3], unnamed[:2], named[:3]) == (["id", "name", "due"], ["p", "in"], ["n", "send_mail", "in"])
    populated.kill("n")
    head, *rows = (line.split() for line in cli("dead", "list", "reminders").out.splitlines())
    assert (head[:3], rows[1][:2]) == (["id", "name", "died"], ["n", "send_mail"])


def test_lists_all_living_messages_with_their_states_by_default(cli, populated):
    counts = populated.counts()
    listed = cli("list", "reminders", "--json").json["messages"]
    assert len(listed) == counts.living
    assert {one["id"]: one["state"] for one in listed} == {one["id"]: populated.get(one["id"]).state for one in listed}
    assert {one["state"] for one in listed} >= {"pending", "ready", "active", "backoff"}
    head, *rows = (line.split() for line in cli("list", "reminders").out.splitlines())
    assert head == ["id", "state", "due", "payload"]
    assert [row[:2] for row in rows] == [[one["id"], one["state"]] for one in listed]


@pytest.mark.parametrize("limit", range(1, 8))
def test_pages_of_all_living_messages_hold_each_once(cli, populated, limit):
    seen, cursor = [], []
    while cursor is not None:
        page = cli("list", "reminders", f"--limit={limit}", "--json", *cursor).json
        seen += [message["id"] for message in page["messages"]]
        assert len(page["messages"]) <= limit  # entries that are in another state by now are read, too
        cursor = ["--cursor", page["cursor"]] if page["cursor"] else None
    assert seen == [one["id"] for one in cli("list", "reminders", "--all", "--json").json["messages"]]


def test_notes_that_no_message_lives(cli, queue):
    queue.send_delay_msg("hello", id="m")
    with queue.lease() as message:
        message.reject("no such user")
    assert cli("list", "reminders").err == "no living messages in reminders\n"


def test_notes_that_no_message_is_in_a_state(cli, populated):
    ended = cli("list", "reminders", "--state", "garbage")
    assert (ended.code, ended.out, ended.err) == (0, "", "no garbage messages in reminders\n")
    assert cli("list", "reminders", "--state", "garbage", "--json").json == {"messages": [], "cursor": None}


def test_pages_through_a_listing(cli, queue):
    queue.send_many([NewMessage(n, id=f"m{n:02}", delay=3600 + n) for n in range(25)])
    seen, cursor = [], []
    while True:
        page = cli("list", "reminders", "--limit=10", "--json", *cursor).json
        seen += [message["id"] for message in page["messages"]]
        assert len(page["messages"]) <= 10
        if page["cursor"] is None:
            break
        cursor = ["--cursor", page["cursor"]]
    assert seen == [f"m{n:02}" for n in range(25)]


def test_notes_how_to_read_the_next_page(cli, queue):
    queue.send_many([NewMessage(n, id=f"m{n}", delay=3600 + n) for n in range(3)])
    ended = cli("list", "reminders", "--limit", "2")
    (cursor,) = re.findall(r"more: --cursor (\S+), or --all", ended.err)
    assert [line.split()[0] for line in ended.out.splitlines()] == ["id", "m0", "m1"]
    assert [line.split()[0] for line in cli("list", "reminders", "--cursor", cursor).out.splitlines()] == ["id", "m2"]


def test_lists_all_pages_under_one_heading(cli, queue, monkeypatch):
    monkeypatch.setattr("delayq.cli.messages.list.MAX_ROWS", 10)
    queue.send_many([NewMessage(n, id=f"m{n:02}", delay=3600 + n) for n in range(25)])
    ended = cli("list", "reminders", "--all")
    assert [line.split()[0] for line in ended.out.splitlines()] == ["id", *(f"m{n:02}" for n in range(25))]
    assert ended.err == ""
    pages = [json.loads(line) for line in cli("list", "reminders", "--all", "--json").out.splitlines()]
    assert [len(page["messages"]) for page in pages] == [10, 10, 5]
    assert pages[-1]["cursor"] is None


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--state", "lost"], "'lost' is not one of 'pending', 'ready'"),
        (["--limit", "0"], "0 is not in the range"),
        (["--limit", "1001"], "1001 is not in the range"),
        (["--cursor", "nonsense"], "cursor 'nonsense' is of another list"),
        (["--cursor", "pending:nonsense"], "cursor 'nonsense' is not from a page of pending messages"),
        (["--cursor", "nonsense", "--state", "ready"], "cursor 'nonsense' is not from a page of ready messages"),
    ],
)
def test_list_refuses_invalid_options(cli, populated, options, error):
    ended = cli("list", "reminders", *options)
    assert (ended.code, ended.out) == (2, "")
    assert error in ended.line


# show


def test_shows_a_message_in_full(cli, populated):
    out = cli("show", "reminders", "p").out
    facts, _, payload = out.partition("\n\n")
    lines = dict(re.split(r"  +", line, maxsplit=1) for line in facts.splitlines())
    assert lines["id"] == "p"
    assert lines["state"] == "pending"
    assert re.fullmatch(r"in 3h  \(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC\)", lines["due"])
    assert lines["attempts"] == "0, 3 retries left"
    assert lines["header trace"] == "t-1"
    assert lines["payload"] == "json, 10 bytes"
    assert payload == '{\n  "of": "p"\n}\n'


def test_shows_the_message_of_an_entry_of_the_dead_letter(cli, populated):
    (group,) = cli("dead", "groups", "reminders", "--json").json["groups"]
    assert cli("show", "reminders", group["sample"], "--json").json["entry"] == group["sample"]
    assert cli("show", "reminders", "d:1").code == cli("show", "reminders", "p:1").code == 3


def test_shows_why_a_message_died(cli, populated):
    out = cli("show", "reminders", "d").out
    assert re.search(r"^reason +no such user$", out, re.MULTILINE)
    found = cli("show", "reminders", "d", "--json").json
    assert set(found) == MESSAGE_KEYS
    assert (found["state"], found["reason"], found["entry"]) == ("dead", "no such user", f"d:{found['token']}")


@pytest.mark.parametrize(
    ("stored", "payload", "encoding"),
    [
        (b'{"a": [1, null]}', {"a": [1, None]}, "json"),
        ("ünï".encode(), "ünï", "text"),
        (b"\xff\x00", base64.b64encode(b"\xff\x00").decode(), "base64"),
        (b"[" * 100_000, "[" * 100_000, "text"),
        (b"", "", "text"),
    ],
)
def test_shows_any_payload(cli, redis_url, stored, payload, encoding):
    with DelayQueue("reminders", url=redis_url, codec="bytes") as queue:
        queue.send_delay_msg(stored, "1h", id="a")
    found = cli("show", "reminders", "a", "--json").json
    assert (found["payload"], found["encoding"], found["size"]) == (payload, encoding, len(stored))
    assert f"{encoding}, {len(stored):,} byte" in cli("show", "reminders", "a").out


def test_page_has_the_beginning_of_a_long_payload(cli, redis_url):
    with DelayQueue("reminders", url=redis_url, codec="text") as queue:
        queue.send_delay_msg('"' + "ü" * 50_000 + '"', "1h", id="a")
    (message,) = cli("list", "reminders", "--json").json["messages"]
    assert (message["truncated"], message["encoding"], message["size"]) == (True, "text", 100_002)
    assert message["payload"] == '"' + "ü" * ((4096 - 1) // 2)
    (_, row) = cli("list", "reminders").out.splitlines()
    assert row.endswith("ü…")
    assert len(row) < 300
    assert cli("show", "reminders", "a", "--json").json["payload"] == "ü" * 50_000


def test_binary_payloads_are_listed_as_hexadecimal(cli, redis_url):
    with DelayQueue("reminders", url=redis_url, codec="bytes") as queue:
        queue.send_delay_msg(b"\x00\xff" * 20, "1h", id="a")
    assert "40 bytes: 00 ff 00 ff" in cli("list", "reminders").out


# Terminal escapes in messages


@pytest.fixture
def evil(redis_url):
    with DelayQueue("reminders", url=redis_url, codec="text", default_retries=0) as queue:
        queue.send_delay_msg(EVIL, id="d", headers={EVIL: EVIL})
        with queue.lease() as message:
            message.reject(EVIL)
        queue.send_delay_msg(EVIL, id="b", retries=1)
        with queue.lease() as message:
            message.nack(delay=3600, error=EVIL)
        queue.send_delay_msg(EVIL, "1h", id="p")


@pytest.mark.parametrize(
    "arguments",
    [
        ["list", "reminders"],
        ["list", "reminders", "--state", "backoff"],
        ["list", "reminders", "--state", "dead"],
        ["dead", "list", "reminders"],
        ["show", "reminders", "p"],
        ["show", "reminders", "b"],
        ["show", "reminders", "d"],
    ],
)
def test_terminal_escapes_are_removed(cli, evil, arguments):
    out = cli(*arguments).out
    assert HARMLESS in out
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", out)


@pytest.mark.parametrize("arguments", [["list", "reminders"], ["show", "reminders", "p"], ["show", "reminders", "d"]])
def test_json_escapes_terminal_escapes(cli, evil, arguments):
    ended = cli(*arguments, "--json")
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", ended.out)
    found = ended.json
    message = found["messages"][0] if "messages" in found else found
    assert message["payload"] == EVIL


# Missing messages and queues


def test_unknown_message_is_not_found(cli, populated):
    ended = cli("show", "reminders", "unknown")
    assert (ended.code, ended.out) == (3, "")
    assert ended.line.startswith("no message 'unknown' in reminders: it was never sent, or is done")


@pytest.mark.parametrize("events", [False, True])
def test_missing_message_says_how_to_learn_what_became_of_it(cli, redis_url, events):
    with DelayQueue("reminders", url=redis_url, events=events, callback=lambda message: None) as queue:
        queue.send_delay_msg("hello", id="m")
        queue.run(burst=True)

    line = cli("show", "reminders", "m").line

    if events:
        assert line.endswith("what became of it may be in delayq events reminders --id m")
        assert " acked " in cli("events", "reminders", "--id", "m").out
    else:
        for means in ("--retention", "delayq events reminders --on", "delayq worker --log-messages"):
            assert means in line


@pytest.mark.parametrize(
    "arguments",
    [
        ["stats"],
        ["list"],
        ["show", "a"],
        ["cancel", "a"],
        ["reschedule", "a", "--delay=1h"],
        ["purge", "--yes"],
        ["dead", "list"],
        ["dead", "redrive", "--all", "--yes"],
        ["dead", "purge", "--all", "--yes"],
    ],
)
def test_unknown_queue_is_not_found_and_not_created(cli, queue, redis_client, arguments):
    queue.send_delay_msg(1, "1h")
    before = {key: redis_client.type(key) for key in redis_client.scan_iter()}
    verb = arguments[:2] if arguments[0] == "dead" else arguments[:1]
    ended = cli(*verb, "remindrs", *arguments[len(verb) :])
    assert (ended.code, ended.out) == (3, "")
    assert ended.line == "no queue named 'remindrs', did you mean 'reminders'?"
    assert {key: redis_client.type(key) for key in redis_client.scan_iter()} == before


def test_inspecting_writes_nothing(cli, redis_client, populated):
    before = {key: redis_client.dump(key) for key in redis_client.scan_iter()}
    redis_client.config_resetstat()
    for arguments in (["queues"], ["stats", "reminders"], ["list", "reminders"], ["show", "reminders", "p"]):
        assert cli(*arguments).code == 0
    assert {key: redis_client.dump(key) for key in redis_client.scan_iter()} == before
    assert "cmdstat_sadd" not in redis_client.info("commandstats")
