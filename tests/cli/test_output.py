"""The output of commands: into a terminal or pipe of any encoding, and into one that nobody reads."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from delayq import DelayQueue
from delayq.cli.app import COMMANDS, READERS, SERVICES
from tests.support.processes import Process, run

TEXT = {"text": "\u2713 \u2192 \xe9 \U0001f600"}
LOOKING = [
    ["queues"],
    ["stats", "q"],
    ["workers", "q"],
    ["history", "q"],
    ["health", "q"],
    ["forecast", "q"],
    ["list", "q"],
    ["list", "q", "--json"],
    ["list", "q", "--csv"],
    ["list", "q", "--state", "dead"],
    ["search", "q", "text"],
    ["show", "q", "a"],
    ["show", "q", "a", "--json"],
    ["result", "q", "done"],
    ["events", "q"],
    ["runs", "q"],
    ["dead", "list", "q"],
    ["dead", "groups", "q"],
    ["schedules", "list", "q"],
    ["limits", "list", "q"],
    ["metrics", "q", "--once"],
    ["doctor"],
    ["export", "q"],
    ["send", "q", json.dumps(TEXT), "--id", "b"],
    ["cancel", "q", "b"],
    ["docs", "life-of-a-message"],
    ["list", "\u2713"],
    ["--help"],
]
ALL = """
import json, sys
from delayq.cli import main
failed = []
for arguments in json.loads(sys.argv[1]):
    try:
        main(arguments)
    except SystemExit as ended:
        failed.append([ended.code, arguments])
open("codes.json", "w").write(json.dumps(failed))
"""


@pytest.fixture
def filled(redis_url):
    with DelayQueue("q", url=redis_url, events=True) as queue:
        queue.callback(lambda message: TEXT if message.id == "done" else 1 / 0)
        queue.send_delay_msg(TEXT, id="done", retention="1h")
        queue.send_delay_msg(TEXT, id="dead", retries=0, headers={"a": "\u2713"})
        queue.run(burst=True)
        queue.send_delay_msg(TEXT, "1h", id="a")
        queue.schedules.add("every", payload=TEXT, cron="0 9 * * *")
    return redis_url


@pytest.mark.long
@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "gbk", "utf-8"])
def test_what_an_encoding_lacks_is_escaped(filled, encoding, tmp_path):
    env = {"DELAYQ_URL": filled, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0", "TERM": "dumb"}
    command = [sys.executable, "-c", ALL, json.dumps(LOOKING)]
    ended = run(command, env=env, cwd=tmp_path, check=True, capture_output=True)
    out, err = (
        ended.stdout.decode("utf-8" if encoding == "ascii" else encoding, "replace"),
        ended.stderr.decode(errors="replace"),
    )
    assert "internal error" not in err
    codes = {" ".join(arguments): code for code, arguments in json.loads((tmp_path / "codes.json").read_text())}
    assert [name for name, code in codes.items() if code] == ["doctor", "list \u2713"]
    shown = [json.loads(line) for line in out.splitlines() if line.startswith(('{"id"', '{"messages"'))]
    payloads = [row["payload"] for found in shown for row in found.get("messages", [found])]
    assert payloads.count(TEXT) >= 2  # JSON is JSON in every encoding; an export is UTF-8


def ended(arguments, url, stdin=None, stdout=None):
    """Run a command whose output nobody reads; return its code and what it says."""
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "delayq", "--url", url, *arguments]
    try:
        done = run(command, stdout=writing if stdout is None else stdout, stderr=-1, input=stdin)
    finally:
        os.close(writing)
    return done.returncode, done.stderr.decode()


@pytest.mark.long
def test_reader_that_is_gone_changes_neither_work_nor_exit_code(filled):
    lines = "".join(f"{n}\n" for n in range(600)).encode()
    assert ended(["send", "many", "-", "--json"], filled, stdin=lines) == (0, "")
    assert DelayQueue("many", url=filled).counts().ready == 600
    assert ended(["send", "q", "1", "--id", "c", "--delay", "1h", "--json"], filled) == (0, "")
    assert ended(["cancel", "q", "c", "--json"], filled) == (0, "")
    assert ended(["cancel", "q", "c", "--json"], filled)[0] == 3
    for arguments in (
        ["list", "many", "--state", "ready", "--all"],
        ["export", "many"],
        ["docs", "command-line"],
        ["show", "q", "a"],
    ):
        assert ended(arguments, filled) == (0, ""), arguments
    assert ended(["show", "q", "nowhere"], filled)[0] == 3


@pytest.mark.long
def test_closed_output_and_full_disk(filled):
    close = 'exec "$0" -m delayq --url "$1" send q 1 --delay 1h --id "$2"'
    for how, id in ((">&-", "d"), (">&- 2>&-", "e"), ("<&- >&- 2>&-", "f")):
        done = run(["sh", "-c", f"{close} {how}", sys.executable, filled, id], capture_output=True)
        assert (done.returncode, done.stdout) == (0, b""), how
        assert DelayQueue("q", url=filled).get(id) is not None
    for words, told in (
        ("export q >&-", "standard output is closed: nothing can be exported to it"),
        ("send q - <&-", "standard input is closed"),
        ("import q - <&-", "standard input is closed"),
    ):
        done = run(["sh", "-c", f'exec "$0" -m delayq --url "$1" {words}', sys.executable, filled], capture_output=True)
        assert done.returncode != 0, words
        assert told in done.stderr.decode(), words
        assert done.stderr.count(b"\n") == 1, words
    with Path("/dev/full").open("wb") as full:
        code, line = ended(["list", "q"], filled, stdout=full)
    assert (code, line) == (
        1,
        "delayq: cannot write all of the output: No space left on device; what was done stays\n",
    )


def test_notes_that_nobody_reads_stop_nothing(filled):
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "delayq", "--url", filled, "send", "q", "1", "--id", "g", "--delay", "1h"]
    with Process(command, stdout=-1, stderr=writing) as process:
        out, _ = process.communicate()
    os.close(writing)
    assert (process.returncode, out) == (0, b"g\n")


def test_each_command_has_a_way_with_output_that_nobody_reads():
    known = {name for section in COMMANDS.values() for name in section}
    assert known >= READERS | SERVICES
    assert not READERS & SERVICES
    assert not READERS & {*COMMANDS["Manage"], "send", "import", "load", "plan", "migrate"}
