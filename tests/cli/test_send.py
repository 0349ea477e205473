"""`delayq send`: one message, or one per line."""

import io
from datetime import UTC, datetime, timedelta

import pytest

from delayq import DelayQueue, State
from delayq.broker.batches import BATCH
from delayq.cli.support.progress import progress_bars
from delayq.values.text import iso


def stored(redis_url, state=State.READY, **options):
    with DelayQueue("reminders", url=redis_url, **options) as queue:
        return queue.list(state, limit=1000).messages


def test_payloads_are_collected_by_the_id_of_their_group(cli):
    group = ("--id=a", "--debounce=1h", "--at-most=2h", "--collect=9")
    statuses = [cli("send", "reminders", text, *group, "--json").json["status"] for text in ("1", "[2]", "null")]
    assert statuses == ["new", "added", "added"]
    assert cli("show", "reminders", "a", "--json").json["payload"] == [1, [2], None]
    assert "gathering, 3 of 9: it is due at" in cli("why", "reminders", "a").out
    assert cli("send", "reminders", "4", *group).err.startswith("added to the group in reminders, due")
    for options, text in [
        (["--collect=2", "--id=b"], "--collect goes with --debounce and the --id of the group"),
        (["--collect=2", "--unique", "--debounce=1h"], "--collect goes with --debounce and the --id of the group"),
        (["--collect=0", "--id=b", "--debounce=1h"], "collect must be a whole number from 1 to 1000"),
    ]:
        refused = cli("send", "reminders", "1", *options)
        assert (refused.code, text in refused.err) == (2, True)


def test_sends_json_now_and_prints_the_id(cli, queue):
    ended = cli("send", "reminders", '{"user": 42}')
    assert ended.code == 0
    message = queue.get(ended.out.strip())
    assert (message.payload, message.retries_left) == ({"user": 42}, 3)
    assert ended.err == "sent to reminders, due now\n"


def test_prints_id_status_and_owner_as_json(cli, queue):
    options = ("send", "reminders", "1", "--id", "a", "--delay=1h", "--json")
    assert cli(*options).json == {"queue": "reminders", "id": "a", "status": "new"}
    again = cli(*options)
    owner = {"state": "pending", "due": iso(queue.get("a").due)}
    assert (again.code, again.json) == (0, {"queue": "reminders", "id": "a", "status": "exists", "owner": owner})


def test_sends_with_every_option(cli, queue):
    cli("send", "reminders", "1", "--id=a", "--delay=1h30m", "--retries=7", "--header=a=b=c", "--header", "d=")
    message = queue.get("a")
    assert timedelta(minutes=89) < message.due - datetime.now(UTC) < timedelta(minutes=91)
    assert (message.retries_left, dict(message.headers)) == (7, {"a": "b=c", "d": ""})


def test_spreads_what_is_due_at_one_time(cli, queue):
    at = "2090-01-31T09:00+00:00"
    ended = cli("send", "reminders", "1", "--id=a", "--at", at, "--jitter=5m")
    assert ended.err.endswith(", or up to 5m later\n")
    assert timedelta(0) < queue.get("a").due - datetime.fromisoformat(at) <= timedelta(minutes=5)
    refused = cli("send", "reminders", "1", "--jitter=2d")
    assert refused.code == 2
    assert refused.err.startswith("delayq: jitter must be between 0s and 1d, not 2d")
    assert cli("send", "reminders", "1", "--id=b", "--jitter=1m", "--debounce=1h").code == 2


def test_sends_what_is_delivered_within_hours(cli, queue):
    times = ("--at=2090-01-31T23:00", "--hours", "08:00-21:00", "--tz=Europe/Berlin")
    ended = cli("--tz=UTC", "send", "reminders", "1", "--id=a", *times)
    assert (ended.code, ended.err) == (0, "sent to reminders, due 2090-02-01T07:00:00.000Z\n")
    assert queue.get("a").due == datetime(2090, 2, 1, 7, tzinfo=UTC)
    assert "hours     08:00-21:00 Europe/Berlin\n" in cli("show", "reminders", "a").out
    lines = cli("send", "reminders", "-", "--delay=1h", "--hours=08:00-21:00", stdin="1\n2\n")
    assert lines.out == "sent 2 messages to reminders, due in 1h, or when its hours open\n"
    for options, line in (
        (("--hours=8-21",), "delayq: hours must look like '08:00-21:00', "),
        (("--hours=08:00-21:00", "--tz=Moon"), "delayq: unknown time zone 'Moon'"),
        (("--tz=UTC",), "delayq: --tz goes with --hours; for the times of a command, give it first: delayq --tz "),
    ):
        refused = cli("send", "reminders", "1", *options)
        assert (refused.code, refused.out) == (2, "")
        assert refused.err.startswith(line)


def test_delay_without_a_unit_is_seconds(cli, queue):
    assert cli("send", "reminders", "1", "--id=a", "--delay", "90.5").code == 0
    assert timedelta(seconds=80) < queue.get("a").due - datetime.now(UTC) < timedelta(seconds=91)


@pytest.mark.parametrize("value", ["0", "0.0"])
def test_an_error_shows_a_number_as_it_was_given(cli, value):
    assert cli("--timeout", value, "queues").line.startswith(
        f"--timeout must be between 100ms and 100 years, not {value}."
    )


def test_sends_at_a_time_with_a_zone(cli, queue):
    ended = cli("send", "reminders", "1", "--id=a", "--at", "2090-01-31T09:00+01:00")
    assert queue.get("a").due == datetime(2090, 1, 31, 8, tzinfo=UTC)
    assert "(2090-01-31 08:00:00+00:00)" in ended.err


def test_a_time_without_a_zone_is_in_that_of_the_command(cli, queue):
    at = ("--at", "2090-01-31T09:00")
    assert cli("--tz", "Europe/Berlin", "send", "reminders", "1", "--id=a", *at).code == 0
    assert queue.get("a").due == datetime(2090, 1, 31, 8, tzinfo=UTC)
    assert cli("reschedule", "reminders", "a", *at).code == 0  # the zone of the environment is UTC
    assert queue.get("a").due == datetime(2090, 1, 31, 9, tzinfo=UTC)
    assert cli("send", "reminders", "1", "--id=b", "--at", "+2h").code == 0
    assert timedelta(minutes=119) < queue.get("b").due - datetime.now(UTC) < timedelta(minutes=121)


def test_replaces_a_pending_message(cli, queue):
    cli("send", "reminders", "1", "--id=a", "--delay=1h")
    ended = cli("send", "reminders", "2", "--id=a", "--replace", "--json")
    assert (ended.code, ended.json["status"], queue.get("a").payload) == (0, "replaced", 2)


@pytest.mark.parametrize("options", [["1"], ["-"]], ids=["one", "many"])
def test_replacing_without_an_id_is_refused(cli, queue, options):
    ended = cli("send", "reminders", *options, "--replace")
    assert ended.code == 2
    assert "--replace needs the --id of the message to replace" in ended.err
    assert queue.counts().living == 0


def test_reports_an_id_settled_before(cli, redis_url):
    with DelayQueue("reminders", url=redis_url, dedupe_window="1h") as queue:
        queue.send_delay_msg(1, 60, id="a")
        queue.cancel("a")
    ended = cli("send", "reminders", "2", "--id=a")
    assert (ended.code, ended.out.strip()) == (0, "a")
    assert ended.err.startswith("not sent to reminders: a message with this id has ended, and the id is reserved until")
    found = cli("send", "reminders", "2", "--id=a", "--json").json
    assert (found["status"], found["owner"]["state"]) == ("settled", "settled")
    free = datetime.fromisoformat(found["owner"]["due"]) - datetime.now(UTC)
    assert timedelta(minutes=58) < free < timedelta(minutes=61)


def test_sends_what_expires(cli, queue):
    cli("send", "reminders", "1", "--id=a", "--delay=1h", "--expires=2h", "--missed=drop")
    found = queue.get("a")
    assert found.expires - found.due == timedelta(hours=2)
    assert found.expires.strftime("%Y-%m-%d") in cli("show", "reminders", "a").out
    for options in (["--expires=soon"], ["--expires=0"], ["--missed=drop"], ["--expires=1h", "--missed=lost"]):
        ended = cli("send", "reminders", "2", *options)
        assert (ended.code, ended.out) == (2, ""), options
        assert ended.line
    assert queue.counts().living == 1


def test_sends_with_a_priority(cli, queue):
    cli("send", "reminders", "1", "--id=a", "--priority=-5")
    assert queue.get("a").priority == -5
    assert "-5" in cli("show", "reminders", "a").out
    cli("send", "reminders", "-", "--priority", "7", stdin=b"2\n3\n")
    assert [message.priority for message in queue.list("ready").messages] == [-5, 7, 7]
    for priority in ("101", "-101"):
        ended = cli("send", "reminders", "2", "--priority", priority)
        assert (ended.code, ended.line) == (2, f"priority must be a whole number from -100 to 100, not {priority}")
    assert cli("send", "reminders", "2", "--priority=1.5").code == 2
    assert queue.counts().living == 3
    ended = cli("send", "tasks", "1", "--priority=0", "--engine=streams")
    assert (ended.code, ended.line) == (2, "the streams engine has no priorities")


def test_sends_what_is_unique_once(cli, queue):
    first, again = cli("send", "reminders", "1", "--unique"), cli("send", "reminders", "1", "--unique")
    assert first.out == again.out
    assert cli("send", "reminders", "-", "--unique", stdin=b"1\n2\n2\n").code == 0
    assert queue.counts().living == 2
    ended = cli("send", "reminders", "3", "--unique", "--id=a")
    assert (ended.code, ended.line) == (2, "give id or unique, but not both: unique makes the id")


def test_sends_a_burst_as_one_message(cli, queue):
    first = cli("send", "reminders", "1", "--id=a", "--debounce=1h", "--at-most=2h")
    last = cli(
        *("send", "reminders", "2", "--id=a", "--debounce=1h", "--at-most=2h", "--name=n", "--retries=7"),
        *("--header=a=b", "--priority=5", "--timeout=2m", "--retention=1d"),
    )
    assert (first.err, last.err) == ("sent to reminders, due in 1h\n", "replaced in reminders, due in 1h\n")
    found = queue.get("a")
    assert (found.payload, found.name, found.retries_left, found.headers) == (2, "n", 7, {"a": "b"})
    assert (found.priority, found.timeout, found.retention) == (5, 120.0, timedelta(days=1))
    assert cli("send", "reminders", "3", "--unique", "--debounce=1h", "--json").json["status"] == "new"
    for options, line in (
        (["--debounce=1h"], "--debounce needs an --id, or --unique"),
        (["--debounce=1h", "--id=a", "--delay=1h"], "--debounce does not go with --delay"),
        (["--debounce=1h", "--id=a", "--replace-after"], "--debounce does not go with --replace-after"),
        (["--debounce=1h", "--id=a", "--unique-for=1h"], "--debounce does not go with --unique-for"),
        (["--at-most=1h", "--id=a"], "--at-most goes with --debounce"),
    ):
        ended = cli("send", "reminders", "4", *options)
        assert (ended.code, ended.line.partition(". See")[0]) == (2, line)
    assert cli("send", "reminders", "-", "--unique", "--debounce=1h", stdin=b"1").code == 2
    assert queue.counts().living == 2


def test_sends_what_reserves_its_id(cli, queue):
    cli("send", "reminders", "1", "--id=a", "--unique-for=1h", "--unique-after=10m")
    with queue.lease():
        pass
    ended = cli("send", "reminders", "2", "--id=a")
    assert "not sent to reminders: a message with this id has ended, and the id is reserved until 2" in ended.err
    found = cli("send", "reminders", "2", "--id=a", "--json").json
    assert (found["status"], found["owner"]["state"]) == ("settled", "settled")
    for options, line in (
        (["3", "--unique-for=1h"], "--unique-for needs an --id, or --unique"),
        (["-", "--unique-after=1h"], "--unique-after needs an --id, or --unique"),
        (["3", "--unique-for=1h", "--id=b", "--replace"], "--unique-for does not go with --replace"),
        (["3", "--unique-after=1h", "--id=b", "--replace-after"], "--unique-after does not go with --replace"),
    ):
        ended = cli("send", "reminders", *options)
        assert (ended.code, ended.line.startswith(line)) == (2, True), ended.line
    assert queue.counts().living == 0


def test_sends_with_a_timeout(cli, queue):
    cli("send", "reminders", "1", "--id=a", "--timeout=90s")
    assert queue.get("a").timeout == 90.0
    assert "1m 30s" in cli("show", "reminders", "a").out
    for wrong in ("soon", "0", "-1s"):
        ended = cli("send", "reminders", "2", f"--timeout={wrong}")
        assert (ended.code, ended.out) == (2, ""), wrong
        assert "timeout" in ended.line
        assert "timedelta" not in ended.line
    assert queue.counts().living == 1


def test_running_message_cannot_be_replaced(cli, queue):
    cli("send", "reminders", "1", "--id=a")
    with queue.lease("30s"):
        ended = cli("send", "reminders", "2", "--id=a", "--replace")
        assert (ended.code, queue.get("a").payload) == (1, 1)
        assert ended.err == "not replaced in reminders: the message with this id is being processed\n"


def test_existing_message_is_not_changed(cli):
    cli("send", "reminders", "1", "--id=a")
    ended = cli("send", "reminders", "2", "--id=a")
    assert (ended.code, ended.out) == (0, "a\n")
    assert "--replace" in ended.err


@pytest.mark.parametrize(
    ("options", "payload", "expected"),
    [(["--text"], "ünï", "ünï"), (["--codec", "text"], "{", "{"), (["--codec", "bytes"], "ü", "ü".encode())],
)
def test_sends_text_and_bytes(cli, redis_url, options, payload, expected):
    cli("send", "reminders", payload, *options)
    codec = "text" if isinstance(expected, str) else "bytes"
    assert [message.payload for message in stored(redis_url, codec=codec)] == [expected]


def test_sends_one_message_per_line_of_stdin(cli, redis_url):
    ended = cli("send", "reminders", "-", stdin=b'{"n": 1}\r\n\n2\n"last"')
    assert (ended.code, ended.out) == (0, "sent 3 messages to reminders, due now\n")
    assert ended.err == ""
    assert [message.payload for message in stored(redis_url)] == [{"n": 1}, 2, "last"]


def test_blank_line_is_a_message_with_text(cli, redis_url):
    cli("send", "reminders", "-", "--text", stdin=b"a\n\nb\n")
    assert [message.payload for message in stored(redis_url, codec="text")] == ["a", "", "b"]


def test_sends_a_file_in_batches_with_the_same_options(cli, redis_url, tmp_path):
    lines = tmp_path / "lines.ndjson"
    lines.write_text("".join(f"{n}\n" for n in range(2 * BATCH + 1)))
    ended = cli("send", "reminders", "--file", str(lines), "--delay=1h", "--retries=1", "--json")
    assert len(ended.out.splitlines()) == 2 * BATCH + 1
    assert {message.retries_left for message in stored(redis_url, state=State.PENDING)} == {1}


def test_reports_messages_sent_before_an_invalid_line(cli, redis_url):
    lines = "".join(f"{n}\n" for n in range(BATCH)) + "1\nnonsense\n"
    ended = cli("send", "reminders", "-", stdin=lines.encode())
    assert ended.code == 2
    assert f"line {BATCH + 2} is not JSON" in ended.line
    assert f"{BATCH} messages were sent before that" in ended.line
    assert len(stored(redis_url)) == BATCH


def test_shows_progress_on_a_terminal(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with progress_bars() as add_bar:
        add_bar("sending")(500, 1000, "1,234 sent")
    assert "1,234 sent" in terminal.getvalue()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["reminders"], "give either PAYLOAD or --file"),
        (["reminders", "1", "--file", "-"], "give either PAYLOAD or --file"),
        (["reminders", "nonsense"], "PAYLOAD is not JSON"),
        (["reminders", "[" * 100_000], "PAYLOAD is not JSON"),
        (["reminders", "\udcff", "--text"], "PAYLOAD is not UTF-8"),
        (["reminders", '"\udc80"'], "PAYLOAD is not"),
        (["reminders", "1", "--delay", "1h", "--at", "2090-01-01T00:00Z"], "either --delay or --at"),
        (["reminders", "1", "--delay", "soon"], "--delay must look like '1h30m'"),
        (["reminders", "1", "--delay", "-5"], "--delay"),
        (["reminders", "1", "--delay", "1e9d"], "--delay"),
        (["reminders", "1", "--delay", "99999999d"], "--delay must be between"),
        (["reminders", "1", "--at", "tomorrow"], "--at must look like"),
        (["reminders", "1", "--at", "9999-01-01T00:00Z"], "--at must lie between"),
        (["reminders", "1", "--retries", "-1"], "--retries"),
        (["reminders", "1", "--retries", "many"], "--retries"),
        (["reminders", "1", "--retries", "9" * 20], "retries must be a whole number"),
        (["reminders", "1", "--id", "a b"], "id must be 1 to 128"),
        (["reminders", "1", "--id", ""], "id must be 1 to 128"),
        (["reminders", "1", "--header", "novalue"], "is not NAME=VALUE"),
        (["reminders", "1", "--header", "=x"], "is not NAME=VALUE"),
        (["reminders", "1", "--header", "x=" + "y" * 20_000], "headers take"),
        (["a b", "1"], "queue name must be 1 to 128"),
        (["reminders", "-", "--id", "a"], "--id works with a single PAYLOAD"),
        (["reminders", "--file", "/nowhere/at/all"], "No such file"),
        (["reminders", '"' + "x" * (1 << 20) + '"'], "max_payload"),
        (["reminders", "1", "--codec", "pickle"], "'pickle' is not one of"),
    ],
)
def test_refuses_invalid_input_in_one_line_and_stores_nothing(cli, redis_client, arguments, error):
    ended = cli("send", *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert error in ended.line
    assert redis_client.keys() == []


def test_byte_order_mark_is_no_part_of_a_text_but_of_bytes(cli, redis_url):
    mark = b"\xef\xbb\xbf"
    assert cli("send", "json", "-", stdin=mark + b"1\n").code == 0
    assert cli("send", "text", "-", "--text", stdin=mark + b"a\n").code == 0
    assert cli("send", "bytes", "-", "--codec", "bytes", stdin=mark + b"a\n").code == 0
    stored = [
        DelayQueue(name, url=redis_url, codec="bytes").list("ready").messages for name in ("json", "text", "bytes")
    ]
    assert [message.payload for (message,) in stored] == [b"1", b"a", mark + b"a"]
    ended = cli("send", "json", "-", stdin="1\n".encode("utf-16"))
    assert (ended.code, "it is UTF-16: save it as UTF-8" in ended.line) == (2, True)


def test_refuses_a_line_that_is_too_long(cli, monkeypatch):
    monkeypatch.setattr("delayq.cli.messages.send.MAX_LINE", 100)
    ended = cli("send", "reminders", "-", stdin=b'"' + b"x" * 200 + b'"')
    assert (ended.code, ended.line) == (2, "line 1 is longer than 100 bytes. See 'delayq send --help'.")


@pytest.mark.long
def test_reports_a_full_redis(cli, start_redis):
    server = start_redis("--maxmemory", "1mb", "--maxmemory-policy", "noeviction")
    ended = cli("--url", server.url, "send", "reminders", "1")
    assert (ended.code, ended.out) == (1, "")
    assert "out of memory" in ended.line
