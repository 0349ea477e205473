"""`delayq load`: a file of messages or a plan, into a queue, without Spark."""

from __future__ import annotations

import signal

import pyarrow as pa
import pytest

from delayq.bulk.files.table_files import write_table

LINES = "id,due,payload\na,2099-01-31T09:00:00+01:00,1\nb,2099-03-28T14:30:00Z,2\nc,2020-01-01T00:00:00Z,3\n"


@pytest.fixture(autouse=True)
def files(tmp_path):
    (tmp_path / "messages.csv").write_text(LINES)
    return tmp_path


def many(path, n=400_000):
    """A file that takes some seconds to load."""
    ids = pa.array(range(n)).cast(pa.string())
    write_table(pa.table({"id": ids, "payload": ids, "due": pa.repeat(pa.scalar("2099-01-01T00:00Z"), n)}), path)


def test_loads_what_is_due_from_now_on(cli, queue):
    loaded = cli("load", "messages.csv", "reminders", "--run", "a")
    assert (loaded.code, loaded.out, loaded.err) == (0, "", "run a: 2 new, 1 past\n")
    again = cli(
        "load", "messages.csv", "reminders", "--from", "2019-01-01T00:00Z", "--until", "2099-02-01T00:00Z", "--json"
    )
    assert {name: again.json[name] for name in ("new", "exists", "past", "later")} == {
        "new": 1,
        "exists": 1,
        "past": 0,
        "later": 1,
    }
    assert queue.get("b").payload == 2


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (["missing.csv", "reminders"], 2, "there is no file or folder 'missing.csv'"),
        (["x" * 300, "reminders"], 2, "there is no file or folder 'xxx"),
        (["messages.csv", "no spaces"], 2, "queue"),
        (
            ["messages.csv", "reminders", "--until", "soon"],
            2,
            "--until must look like 2027-01-31T09:00, now",
        ),
        (["messages.csv", "reminders", "--on-error", "ask"], 2, "ask"),
        (["naive.csv", "reminders"], 2, "row 1: due must be a time with its zone, such as 2027-01-31T09:00:00+01:00"),
        (["invalid.csv", "reminders"], 2, "row 2 (id 'no spaces')"),
        (["invalid.csv", "reminders"], 2, "set --on-error collect to send the valid ones"),
    ],
)
def test_bad_input_is_one_line(cli, files, arguments, code, line):
    (files / "naive.csv").write_text("id,due,payload\na,2099-01-31 09:00,1\n")
    (files / "invalid.csv").write_text("id,payload\na,1\nno spaces,2\n")
    ended = cli("load", *arguments)
    assert (ended.code, ended.out) == (code, "")
    assert line in ended.err.splitlines()[-1]


def test_collected_rows_are_counted(cli, files):
    (files / "invalid.csv").write_text("id,payload\na,1\nno spaces,2\n")
    assert (
        cli("load", "invalid.csv", "reminders", "--on-error", "collect", "--run", "a").err
        == "run a: 1 new, 1 refused\n"
    )


def test_says_what_to_install(cli, without):
    without("pyarrow", "delayq.bulk")
    ended = cli("load", "messages.csv", "reminders")
    assert (ended.code, ended.line) == (1, "pyarrow is not installed: pip install 'delayq[bulk]'")


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_load_that_was_cut_off_is_completed_by_the_next(cli, start, queue, files, number):
    many(files / "many.parquet")
    program = start("load", "many.parquet", "reminders", "--max-rows-per-second", "100000")
    program.until(lambda: queue.counts().pending > 1000, "the first messages")
    program.signal(number)
    code = program.ends()
    (cut,) = queue.runs()
    assert (cut.state, 0 < cut.new < 400_000) == ("writing", True)
    if number == signal.SIGINT:
        assert code == 130
        said = f"run {cut.run} has stored {cut.new:,} messages, which stay: load again to add the rest"
        assert program.err.splitlines()[-1] == f"delayq: interrupted; {said}"
    done = cli("load", "many.parquet", "reminders", "--json").json
    assert (done["run"], done["state"], done["new"]) == (cut.run, "committed", 400_000)
    assert queue.counts().pending == 400_000


@pytest.mark.long
def test_redis_that_goes_away_ends_the_load_with_one_line(start, start_redis, files):
    many(files / "many.parquet")
    server = start_redis()
    program = start(
        "--timeout", "2", "load", "many.parquet", "reminders", "--max-rows-per-second", "50000", url=server.url
    )
    client = server.client()
    program.until(lambda: client.zcard("delayq:{reminders}:pending") > 1000, "the first messages")
    server.kill()
    assert program.ends() == 69
    assert (
        "which stay" in program.err.splitlines()[-1]
        or "stays: load again to add the rest" in program.err.splitlines()[-1]
    )
