"""Behaviour of all commands: help, settings, errors, exit codes, and output."""

import os
import re
import subprocess
import sys

import pytest

import delayq
from delayq import DelayQueue
from delayq.cli import main
from delayq.cli.app import COMMANDS
from delayq.cli.worker.worker import worker
from tests.support import processes

VERBS = [name for section in COMMANDS.values() for name in section]
PASSWORD = "s3cr3t"


@pytest.fixture
def settings(tmp_path):
    """`settings(text)` writes the pyproject.toml of the folder."""
    return (tmp_path / "pyproject.toml").write_text


# Help


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_names_every_command(cli, arguments):
    ended = cli(*arguments)
    assert (ended.code, ended.err) == (0, "")
    for section, commands in COMMANDS.items():
        assert f"{section}:\n" in ended.out
        for name, (_, text) in commands.items():
            assert f"  {name} " in ended.out
            assert text in ended.out


@pytest.mark.parametrize("verb", [*VERBS, "dead list", "dead redrive", "dead purge"])
def test_every_command_has_help(cli, verb):
    ended = cli(*verb.split(), "--help")
    assert (ended.code, ended.err) == (0, "")
    assert f"Usage: delayq {verb}" in ended.out
    assert "--help" in ended.out
    assert [line for line in ended.out.splitlines() if len(line) > 80] == []
    assert "\\" not in ended.out.replace("MODULE\\", "")


def test_help_imports_neither_redis_nor_rich():
    code = (
        "import sys, atexit; from delayq.cli import main;"
        "atexit.register(lambda: print(sorted({'redis', 'rich', 'fakeredis'} & set(sys.modules))));"
        "main(['--help'])"
    )
    out = processes.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.endswith("\n[]\n")


def test_runs_as_a_script_and_as_a_module():
    for command in (["-m", "delayq"], ["-c", "from delayq.cli import main; main()"]):
        done = processes.run([sys.executable, *command, "--version"], capture_output=True, text=True, check=True)
        assert done.stdout == f"delayq {delayq.__version__}\n"


def test_version_option_ignores_the_environment(cli):
    # A container image may set DELAYQ_VERSION.
    assert cli("queues", env={"DELAYQ_VERSION": "1.2"}).code == 0


@pytest.mark.parametrize(
    ("words", "completed"),
    [("delayq resc", "reschedule"), ("delayq list rem", "reminders"), ("delayq docs gua", "guarantees")],
)
def test_shell_completion_offers_commands_queues_and_topics(queue, redis_url, words, completed):
    queue.send_delay_msg(1, "1h")
    env = {"_DELAYQ_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    assert completion(env | {"DELAYQ_URL": redis_url}) == [f"plain,{completed}"]


def test_shell_completion_reads_the_settings_of_the_folder(redis_url, settings):
    with DelayQueue("reminders", url=redis_url, prefix="shop") as queue:
        queue.send_delay_msg(1, "1h")
    settings(f"[tool.delayq]\nprefix = 'shop'\nurl = '{redis_url}'\n")
    assert completion({"_DELAYQ_COMPLETE": "bash_complete", "COMP_WORDS": "delayq list ", "COMP_CWORD": "2"}) == [
        "plain,reminders"
    ]


@pytest.mark.long
def test_shell_completion_is_empty_without_redis():
    env = {"_DELAYQ_COMPLETE": "bash_complete", "COMP_WORDS": "delayq list r", "COMP_CWORD": "2"}
    assert completion(env | {"DELAYQ_URL": "unix:///nowhere"}) == []


def completion(env):
    command = [sys.executable, "-m", "delayq"]
    done = processes.run(command, capture_output=True, text=True, check=False, env=os.environ | env)
    assert done.stderr == ""
    return done.stdout.split()


# Usage errors


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["lst"], "no command 'lst', did you mean 'list'? See 'delayq --help'."),
        (["frobnicate"], "no command 'frobnicate'. See 'delayq --help'."),
        (["dead"], "Missing command. See 'delayq dead --help'."),
        (["dead", "lst"], "no command 'lst', did you mean 'list'? See 'delayq dead --help'."),
        (["skip"], "no command 'skip', did you mean 'schedules skip'? See 'delayq --help'."),
        (["purg"], "no command 'purg'. See 'delayq --help'."),  # what deletes is never suggested
        (["cancle", "q", "a"], "no command 'cancle'. See 'delayq --help'."),
        (["dead", "prge"], "no command 'prge'. See 'delayq dead --help'."),
        (["schedules", "remov"], "no command 'remov'. See 'delayq schedules --help'."),
        (["stats", "--wtch", "q"], "No such option '--wtch', did you mean '--watch'? See 'delayq stats --help'."),
        (["worker", "--concurrency", "ten", "a:b"], "'ten' is not a valid integer. See 'delayq worker --help'."),
        (["stats"], "Missing argument 'QUEUE...'. See 'delayq stats --help'."),
        (["events", "a", "b"], "Got unexpected extra argument (b)."),
        (["stats", "q", "--url", "x"], "--url goes before the command: delayq --url … stats"),
        (["spark", "load", "t", "q", "--conf", "a=b"], "--conf goes before the command: delayq spark --conf … load"),
        (["dead", "list", "q", "--tz", "UTC"], "--tz goes before the command: delayq --tz … dead list"),
        (["--timeout", "soon", "queues"], "--timeout must look like"),
        (["--timeout", "0", "queues"], "--timeout must be between 100ms and 100 years"),
        (["--prefix", "a b", "queues"], "prefix must be 1 to 128"),
        (["--url", "http://localhost", "queues"], "url must begin with redis://"),
        (["--url", "redis://localhost:port", "queues"], "password (from the option url)"),
        (["--config", "nowhere.toml", "queues"], "there is no file 'nowhere.toml'"),
        (["enqueue", "q", "1"], "no command 'enqueue': here it is send"),
        (["revoke", "q", "1"], "no command 'revoke': here it is cancel"),
        (["send", "q", "1", "--countdown", "5"], "No such option '--countdown': here it is --delay."),
        (["send", "q", "1", "--max-retries=5"], "No such option '--max-retries': here it is --retries."),
        (["li\x1b[31mst"], "no command 'li"),
    ],
)
def test_usage_error_is_one_line(cli, arguments, error):
    ended = cli(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert error in ended.line
    assert "\x1b" not in ended.line


# Settings from the environment and from pyproject.toml


def test_every_option_has_an_environment_variable(cli, redis_url):
    with DelayQueue("q", url=redis_url, prefix="shop") as queue:
        queue.send_many(range(3), delay="1h")
    env = {"DELAYQ_PREFIX": "shop", "DELAYQ_LIST_LIMIT": "2", "DELAYQ_LIST_JSON": "1"}
    assert len(cli("list", "q", env=env).json["messages"]) == 2
    assert len(cli("list", "q", "--limit", "1", env=env).json["messages"]) == 1
    ended = cli("dead", "list", "q", env=env | {"DELAYQ_DEAD_LIST_LIMIT": "many"})
    assert (ended.code, "'many' is not a valid integer" in ended.line) == (2, True)


def test_settings_come_from_pyproject(cli, redis_url, settings):
    settings(
        "[tool.delayq]\nprefix = 'shop'\ntimeout = 5\n[tool.delayq.send]\nretries = 7\nheader = ['a=b']\njson = true\n"
    )
    assert cli("send", "q", "1", "--id", "a").json["status"] == "new"
    with DelayQueue("q", url=redis_url, prefix="shop") as queue:
        assert (queue.get("a").retries_left, dict(queue.get("a").headers)) == (7, {"a": "b"})
        cli("send", "q", "1", "--id", "b", env={"DELAYQ_SEND_RETRIES": "8"})
        cli("send", "q", "1", "--id", "c", "--retries", "9", env={"DELAYQ_SEND_RETRIES": "8"})
        assert [queue.get(id).retries_left for id in "bc"] == [8, 9]


def test_settings_of_nested_commands_and_of_options_with_dashes(cli, queue, settings):
    settings("[tool.delayq.dead.purge]\ndry-run = true\nall = true\n[tool.delayq.worker]\nlog-level = 'error'\n")
    queue.send_delay_msg(1, "1h")
    assert cli("dead", "purge", "reminders").out == "would delete 0 messages\n"


def test_config_reads_another_file(cli, redis_url, tmp_path):
    (tmp_path / "other.toml").write_text("[tool.delayq]\nprefix = 'shop'\n")
    assert cli("--config", "other.toml", "send", "q", "1").code == 0
    assert cli("queues", env={"DELAYQ_CONFIG": "other.toml"}).out.splitlines()[1].startswith("q ")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[tool.delayq]\nprefx = 'a'\n", "unknown key tool.delayq.prefx, did you mean 'prefix'?"),
        ("[tool.delayq]\nqueue = 'a'\n", "unknown key tool.delayq.queue"),
        ("[tool.delayq.wroker]\ngrace = 1\n", "unknown key tool.delayq.wroker, did you mean 'worker'?"),
        ("[tool.delayq.worker]\ngrase = 1\n", "unknown key tool.delayq.worker.grase, did you mean 'grace'?"),
        ("[tool.delayq.dead.lst]\nlimit = 1\n", "unknown key tool.delayq.dead.lst, did you mean 'list'?"),
        ("[tool.delayq]\nworker = 1\n", "unknown key tool.delayq.worker"),
        ("[tool.delayq.list]\nlimit = [1, 2]\n", "tool.delayq.list.limit takes one value, not a list"),
        ("[tool.delayq.prefix]\na = 1\n", "unknown key tool.delayq.prefix"),
        ("[tool]\ndelayq = 1\n", "tool.delayq must be a table"),
        ("[tool.delayq]\nprefix = 'a b'\n", "prefix must be 1 to 128"),
        ("[tool.delayq]\ntimeout = 'soon'\n", "--timeout must look like"),
        ("[tool.delayq]\ntimeout = true\n", "--timeout must be"),
        ("nonsense", "pyproject.toml cannot be read"),
    ],
)
def test_invalid_setting_is_one_line(cli, settings, text, error):
    settings(text)
    ended = cli("queues")
    assert (ended.code, ended.out) == (2, "")
    assert error in ended.line


def test_setting_with_too_large_a_number_is_refused(cli, settings):
    settings("[tool.delayq.list]\nlimit = 1e400\n")
    ended = cli("list", "q")
    assert ended.code == 2
    assert "'--limit': 'inf' is not" in ended.line


def test_pyproject_without_delayq_is_ignored(cli, settings):
    settings("[tool.other]\nprefix = 1\n[project]\nname = 'x'\n")
    assert cli("queues").code == 0


# Redis is unreachable


@pytest.mark.parametrize(
    "arguments",
    [
        ["send", "q", "1"],
        ["queues"],
        ["stats", "q"],
        ["stats", "q", "--watch"],
        ["list", "q"],
        ["show", "q", "a"],
        ["cancel", "q", "a"],
        ["reschedule", "q", "a", "--delay", "1h"],
        ["dead", "list", "q"],
        ["dead", "redrive", "q", "--all", "--yes"],
        ["dead", "purge", "q", "a"],
        ["purge", "q", "--yes"],
    ],
)
@pytest.mark.parametrize("json", [[], ["--json"]])
def test_unreachable_redis_is_one_line(cli, arguments, json):
    ended = cli("--url", f"redis://u:{PASSWORD}@127.0.0.1:1/0", "--timeout", "100ms", *arguments, *json)
    assert (ended.code, ended.out) == (69, "")
    assert "Connection refused" in ended.line
    assert PASSWORD not in ended.line


@pytest.mark.faults
def test_timeout_limits_the_wait_for_redis(cli, start_redis):
    server = start_redis()
    server.pause()
    ended = cli("--url", server.url, "--timeout", "200ms", "queues")
    assert (ended.code, "Redis" in ended.line) == (69, True)


def test_wrong_password_is_not_printed(cli, start_redis):
    server = start_redis()
    with server.client() as client:
        client.config_set("requirepass", "right")
    ended = cli("--url", f"{server.url}&password={PASSWORD}", "queues")
    assert (ended.code, PASSWORD in ended.line) == (69, False)
    ended = cli("--url", server.url, "queues")
    assert (ended.code, "uthentica" in ended.line) == (69, True), ended.line


@pytest.mark.parametrize("url", [f"redis://:{PASSWORD}/x@host:6379/0", f"foo://u:{PASSWORD}@host"])
def test_malformed_url_is_not_printed(cli, url):
    ended = cli("queues", env={"DELAYQ_URL": url})
    assert (ended.code, PASSWORD in ended.line) == (2, False)


def test_error_reply_of_redis_exits_1(cli, redis_client):
    redis_client.set("delayq:queues", "of another type")
    ended = cli("queues")
    assert (ended.code, ended.out) == (1, "")
    assert "WRONGTYPE" in ended.line


# Errors of delayq itself


def test_internal_error_is_one_line_or_a_traceback(cli, monkeypatch):
    def broken(*_):
        raise RuntimeError(f"at redis://u:{PASSWORD}@host\nand more")

    monkeypatch.setattr("delayq.cli.support.session.Session.stats", broken)
    ended = cli("queues")
    assert ended.code == 1
    assert ended.line == ("internal error, RuntimeError: at redis://***@host and more (delayq --traceback shows where)")
    with pytest.raises(AssertionError, match="RuntimeError"):
        cli("--traceback", "queues")


# Output


@pytest.mark.long
@pytest.mark.parametrize("arguments", [["list", "reminders", "--all"], ["list", "reminders", "--all", "--json"]])
def test_closed_pipe_is_not_an_error(queue, redis_url, arguments):
    for _ in range(3):
        queue.send_many(({"text": "x" * 100} for _ in range(1000)), delay="1h")
    with processes.Process(
        [sys.executable, "-m", "delayq", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "DELAYQ_URL": redis_url},
    ) as process:
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""


@pytest.mark.parametrize(("env", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_colours_on_a_terminal_unless_no_color(cli, queue, env, coloured):
    queue.send_delay_msg(1, "1h")
    forced = {"FORCE_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": "80"}
    assert ("\x1b[" in cli("stats", "reminders", env=forced | env).out) == coloured
    assert "\x1b" not in cli("stats", "reminders").out


@pytest.mark.parametrize("width", [60, 80, 120])
def test_table_fits_the_terminal(cli, queue, width):
    queue.send_delay_msg({"text": "word " * 100}, "1h")
    out = cli("list", "reminders", env={"COLUMNS": str(width)}).out
    assert len(out.splitlines()) == 2
    assert max(map(len, out.splitlines())) <= width
    assert "…" in out


def test_table_is_not_truncated_without_a_terminal(cli, queue):
    queue.send_delay_msg({"text": "word " * 30}, "1h")
    assert out_of(cli("list", "reminders")).endswith('word "}')


def out_of(ended):
    return ended.out.splitlines()[-1]


def test_main_is_a_click_group():
    assert main.name == "main"
    assert main.get_command(main.make_context("delayq", [], resilient_parsing=True), "nothing") is None


def test_help_of_worker_lists_its_options_in_groups(cli):
    groups = dict(re.findall(r"^(\S[^\n]*):\n((?:  [^\n]*\n)+)", cli("worker", "--help").out, re.MULTILINE))
    ways = [f"With --deliver {way}" for way in ("webhook", "smtp", "command")]
    common = ["Options", "Many queues, one pool", "Replacing processes in time", "Metrics and probes", "Logging"]
    assert list(groups) == [*common, "Delivery without code", *ways]
    options = {title: set(re.findall(r"^  (?:-\w, )?(--[\w-]+)", text, re.MULTILINE)) for title, text in groups.items()}
    assert options["Options"] == {"--concurrency", "--processes", "--reload", "--grace", "--burst", "--help"}
    assert options["Many queues, one pool"] == {"--queues", "--strict", "--limit"}
    assert "--allow-private" in options["With --deliver webhook"]
    own = {way: options[way] - {"--allow-private"} for way in ways}
    assert all(one.startswith(f"--{way.split()[-1]}-") for way in ways for one in own[way])
    shown = {option for found in options.values() for option in found}
    assert {param.opts[-1] for param in worker.params if getattr(param, "hidden", True) is False} < shown
