"""`delayq export` and `delayq import`: a queue in a file, and back."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from delayq import DelayQueue, NewMessage

LATER = datetime(2099, 1, 31, 9, tzinfo=UTC)


@pytest.fixture
def sent(queue):
    """Ten waiting messages and a dead one."""
    queue.send_delay_msg({"to": "ada"}, id="dead")
    with queue.lease() as message:
        message.reject("no such user")
    queue.send_many([NewMessage({"n": n}, at=LATER + timedelta(hours=n), id=f"m{n}", name="mail") for n in range(10)])
    return queue


@pytest.fixture
def other(redis_url):
    with DelayQueue("other", url=redis_url) as made:
        yield made


def test_a_queue_goes_through_a_file(cli, sent, other, tmp_path):
    ended = cli("export", "reminders", "q.jsonl")
    assert (ended.code, ended.out, ended.err) == (0, "", "exported 11 messages of reminders\n")
    assert [path.name for path in tmp_path.iterdir()] == ["q.jsonl"]
    ended = cli("import", "other", "q.jsonl", "--run", "a")
    assert (ended.code, ended.out) == (0, "")
    assert ended.err == "run a: 11 new, 1 of them dead\n"
    assert (other.get("m3").payload, other.get("m3").due, other.get("m3").name) == (
        {"n": 3},
        LATER + timedelta(hours=3),
        "mail",
    )
    dead = other.get("dead")
    assert (dead.state, dead.payload, dead.reason) == ("dead", {"to": "ada"}, "no such user")
    assert cli("import", "other", "q.jsonl", "--run", "b").err == "run b: 0 new, 11 already there\n"
    ended = cli("import", "third", "q.jsonl", "--dead", "skip", "--run", "c")
    assert ended.err == "run c: 10 new, 1 dead left out\n"
    assert cli("import", "third", "q.jsonl", "--dead", "send", "--run", "d").err == "run d: 1 new, 10 already there\n"


def test_json_has_the_counts(cli, sent):
    done = cli("export", "reminders", "q.jsonl", "--state", "pending", "--json").json
    assert done == {"queue": "reminders", "file": "q.jsonl", "exported": 10, "states": {"pending": 10}}
    done = cli("import", "other", "q.jsonl", "--json").json
    assert {name: done[name] for name in ("state", "new", "exists", "refused", "dead", "left_out")} == {
        "state": "committed",
        "new": 10,
        "exists": 0,
        "refused": 0,
        "dead": 0,
        "left_out": 0,
    }


def test_json_names_a_file_whose_name_is_no_text(cli, sent):
    assert cli("export", "reminders", "\udcff.jsonl", "--json").json["file"] == "\udcff.jsonl"


def test_a_queue_goes_through_a_pipe(cli, sent, other):
    ended = cli("export", "reminders", "--state", "pending")
    assert ended.err == "exported 10 messages of reminders\n"
    assert [json.loads(line)["id"] for line in ended.out.splitlines()] == [f"m{n}" for n in range(10)]
    assert cli("import", "other", "-", "--run", "a", stdin=ended.out.encode()).err == "run a: 10 new\n"
    assert other.counts().pending == 10


def test_parquet_has_the_fields_as_columns(cli, sent):
    import pyarrow.parquet

    assert cli("export", "reminders", "q.parquet").code == 0
    table = pyarrow.parquet.read_table("q.parquet")
    row = table.to_pylist()[0]
    assert (row["id"], row["payload"], row["due"], row["name"]) == ("m0", b'{"n":0}', LATER, "mail")
    ended = cli("import", "other", "q.parquet", "--run", "a")
    assert ended.err == "run a: 11 new, 1 of them dead\n"


def test_lines_have_nothing_that_a_terminal_would_interpret(cli, queue, other):
    text = "\x1b]0;title\x07\u202e\x9b\x7f"
    queue.send_delay_msg(text, "1h", id="a", headers={"h": text})
    out = cli("export", "reminders").out
    assert out.rstrip("\n").isprintable()
    cli("import", "other", "-", stdin=out.encode())
    assert (other.get("a").payload, other.get("a").headers) == (text, {"h": text})


def test_says_what_is_not_exported(cli, queue):
    queue.send_delay_msg(1, id="a")
    with queue.lease() as message:
        queue.send_delay_msg(2, id="a", replace="after")
        ended = cli("export", "reminders", "q.jsonl")
        message.ack()
    note = "not exported: 1 message that waits to follow a running one"
    assert ended.err == f"exported 1 message of reminders; {note}\n"


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (["export", "nowhere", "q.jsonl"], 3, "no queue named 'nowhere'"),
        (["export", "reminders", "--resume"], 2, "--resume needs a FILE"),
        (["export", "reminders", "--json"], 2, "--json needs a FILE"),
        (["export", "reminders", "no/q.jsonl"], 2, "cannot write no/q.jsonl"),
        (["export", "reminders", "q.jsonl", "--state", "completed"], 2, "completed"),
        (["import", "other", "gone.jsonl"], 2, "there is no file 'gone.jsonl'"),
        (["import", "other", "x" * 300], 2, "there is no file 'xxx"),
        (["export", "reminders", "x" * 300], 2, "cannot write xxx"),
        (["export", "reminders", "x" * 300, "--resume"], 2, "cannot write xxx"),
        (
            ["import", "other", "bad.jsonl", "--run", "a"],
            1,
            "run a: 1 new, 1 refused: bad.jsonl:2: not an exported message",
        ),
        (["import", "other", "bad.jsonl", "--strict"], 2, "bad.jsonl:2: not an exported message"),
        (["import", "other", "-", "--strict"], 2, "--strict needs a FILE"),
        (["import", "other", "bad.jsonl", "--dead", "bury"], 2, "bury"),
        (["import", "no spaces", "bad.jsonl"], 2, "queue"),
    ],
    ids=range(14),
)
@pytest.mark.usefixtures("sent")
def test_bad_input_is_one_line(cli, tmp_path, arguments, code, line):
    (tmp_path / "bad.jsonl").write_text('{"id":"a","payload":1}\n{"id":1,"payload":1}\n')
    ended = cli(*arguments)
    assert (ended.code, ended.out) == (code, "")
    assert line in ended.line


def test_says_what_to_install(cli, sent, without):
    without("pyarrow", "delayq.bulk")
    for words in (("export", "reminders", "q.parquet"), ("import", "other", "q.parquet")):
        ended = cli(*words)
        assert (ended.code, ended.line) == (1, "pyarrow is not installed: pip install 'delayq[bulk]'")
    assert cli("export", "reminders", "q.jsonl").code == 0
    assert cli("import", "other", "q.jsonl").code == 0


def test_interrupted_export_says_how_to_go_on(cli, sent, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("delayq.bulk.export.read_stored", interrupt)
        ended = cli("export", "reminders", "q.jsonl")
        assert (ended.code, ended.line) == (130, "interrupted: export again with --resume to go on")
        ended = cli("export", "reminders")
        assert (ended.code, ended.line) == (130, "interrupted")
    assert cli("export", "reminders", "q.jsonl", "--resume", "--json").json["exported"] == 11


def test_replaces_a_file_with_force_only(cli, sent, tmp_path):
    (tmp_path / "q.jsonl").write_text("mine")
    ended = cli("export", "reminders", "q.jsonl")
    assert (ended.code, ended.out, (tmp_path / "q.jsonl").read_text()) == (2, "", "mine")
    assert ended.line.startswith("q.jsonl is there already: give --force to replace it")
    assert cli("export", "reminders", "q.jsonl", "--force", "--json").json["exported"] == 11
    ended = cli("export", "reminders", "q.jsonl", "--resume")
    assert (ended.code, ended.out) == (0, "")
    assert ended.err == "q.jsonl is already complete: give --force in place of --resume to replace it\n"
    assert cli("export", "reminders", "q.jsonl", "--resume", "--json").json["exported"] is None


def test_resumes_what_was_to_replace_a_file(cli, sent, tmp_path, monkeypatch):
    (tmp_path / "q.jsonl").write_text("mine")
    with monkeypatch.context() as patch:
        patch.setattr("delayq.bulk.export.read_stored", interrupt)
        assert cli("export", "reminders", "q.jsonl", "--force").code == 130
    assert cli("export", "reminders", "q.jsonl", "--resume", "--json").json["exported"] == 11


def test_interrupted_import_says_what_it_has_stored(cli, sent, other, monkeypatch):
    cli("export", "reminders", "q.jsonl", "--state", "pending")
    with monkeypatch.context() as patch:
        patch.setattr("delayq.bulk.load_run.LoadRun.commit", interrupt)
        ended = cli("import", "other", "q.jsonl", "--run", "a")
    said = "run a has stored 10 messages, which stay: import again to add the rest"
    assert (ended.code, ended.line) == (130, f"interrupted; {said}")


def interrupt(*_, **__):
    raise KeyboardInterrupt
