"""`delayq edit`: by options, or the payload in an editor."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from delayq import DelayQueue, Encrypted

KEYS = {"2026": bytes(range(32))}
APP = """
from delayq import DelayQueue, Encrypted
queue = DelayQueue("reminders", url={url!r}, codec=Encrypted({{"2026": bytes(range(32))}}))
other = DelayQueue("other", url={url!r})
"""


@pytest.fixture
def waits(queue):
    """One message that waits."""
    queue.send_delay_msg({"to": "a"}, "1h", id="m", headers={"h": "1"}, name="mail")
    return queue


@pytest.fixture
def editor(tmp_path):
    """`editor(code)` returns the environment in which $EDITOR runs Python code with the `text` of the file."""

    def write(code: str) -> dict[str, str | None]:
        program = Path(tmp_path) / "editor.py"
        program.write_text(
            f"import sys\nfrom pathlib import Path\nfile = Path(sys.argv[1])\ntext = file.read_text()\n{code}\n"
        )
        return {"EDITOR": f"{sys.executable} {program}", "VISUAL": None}

    return write


CHANGE = "file.write_text(text.replace('\"a\"', '\"b\"'))"

OPTIONS = {
    "payload": (['{"to": "b"}'], lambda found: found.payload == {"to": "b"}),
    "text": (["--text", "b"], lambda found: found.payload == b"b"),
    "header": (["--header", "x=2", "--header", "y=3"], lambda found: found.headers == {"x": "2", "y": "3"}),
    "no headers": (["--no-headers"], lambda found: found.headers == {}),
    "name": (["--name", "push"], lambda found: found.name == "push"),
    "priority": (["--priority", "-5"], lambda found: found.priority == -5),
    "expires": (["--expires", "2h"], lambda found: (found.expires - found.due).total_seconds() == 7200),
}


@pytest.mark.parametrize(("options", "holds"), OPTIONS.values(), ids=OPTIONS)
def test_edits_what_the_options_give(cli, waits, options, holds):
    before = waits.get("m")
    ended = cli("edit", "reminders", "m", *options)
    assert (ended.code, ended.out, ended.err) == (0, "m  edited\n", "")
    after = waits.get("m")
    assert holds(after)
    assert (after.due, after.attempts, after.retries_left) == (before.due, before.attempts, before.retries_left)


def test_prints_json_and_the_exit_codes_of_what_stays(cli, waits):
    assert cli("edit", "reminders", "m", "1", "--json").json == {"queue": "reminders", "id": "m", "outcome": "edited"}
    ended = cli("edit", "reminders", "gone", "1")
    assert (ended.code, ended.out) == (3, "gone  gone\n")
    waits.reschedule("m", 0)
    (message,) = waits.lease(n=1)
    assert cli("edit", "reminders", "m", "1").code == 1
    assert cli("edit", "reminders", "m", "1", "--json").json["outcome"] == "running"
    assert cli("edit", "reminders", "m").out == "m  running\n"
    message.reject("no")
    ended = cli("edit", "reminders", "m", "1")
    assert (ended.code, ended.out) == (1, "m  dead\n")
    assert "dead redrive reminders --edit FILE" in ended.err
    assert cli("edit", "reminders", "m").out == "m  dead\n"
    assert cli("edit", "nowhere", "m", "1").code == 3


WRONG = {
    "not JSON": (["{"], "PAYLOAD is not JSON"),
    "both": (["--header", "a=b", "--no-headers"], "not both"),
    "name": (["--name", "a b"], "name must be"),
    "priority": (["--priority", "101"], "priority must be"),
    "header": (["--header", "a"], "is not NAME=VALUE"),
    "nothing": ([], "give PAYLOAD or options, or set EDITOR"),
}


@pytest.mark.parametrize(("options", "text"), WRONG.values(), ids=WRONG)
def test_refuses_wrong_options_in_one_line(cli, waits, options, text):
    before = waits.get("m")
    ended = cli("edit", "reminders", "m", *options, env={"EDITOR": None, "VISUAL": None})
    assert ended.code == 2
    assert text in ended.line
    assert waits.get("m") == before


# In an editor


def test_opens_the_payload_in_an_editor(cli, waits, editor):
    ended = cli("edit", "reminders", "m", env=editor(CHANGE))
    assert (ended.code, ended.out) == (0, "m  edited\n")
    assert (waits.get("m").payload, waits.get("m").headers) == ({"to": "b"}, {"h": "1"})


def test_opens_a_text_in_an_editor(cli, redis_url, editor):
    with DelayQueue("reminders", url=redis_url, codec="text") as queue:
        queue.send_delay_msg('say "a"', "1h", id="m")
        assert cli("edit", "reminders", "m", env=editor(CHANGE)).code == 0
        assert queue.get("m").payload == 'say "b"'


def test_refuses_what_has_changed_while_the_editor_was_open(cli, waits, editor, redis_url):
    meanwhile = (
        f"import redis\nredis.Redis.from_url({redis_url!r}).hset('delayq:{{reminders}}:messages', 'm', '\"other\"')\n"
    )
    ended = cli("edit", "reminders", "m", env=editor(meanwhile + CHANGE))
    assert (ended.code, ended.out) == (1, "m  changed\n")
    assert waits.get("m").payload == "other"


EDITS = {
    "saved as it is": ("file.write_text(text)", "nothing was changed"),
    "no JSON": ("file.write_text('{')", "the edited payload is not JSON"),
    "editor fails": ("sys.exit(3)", "Editing failed"),
}


@pytest.mark.parametrize(("code", "text"), EDITS.values(), ids=EDITS)
def test_changes_nothing_unless_the_editor_leaves_a_payload(cli, waits, editor, code, text):
    ended = cli("edit", "reminders", "m", env=editor(code))
    assert ended.code in (1, 2)
    assert text in ended.line
    assert waits.get("m").payload == {"to": "a"}


# Encrypted and redacted


@pytest.fixture
def app(tmp_path, monkeypatch, redis_url):
    """The name of the program that has the keys."""
    pytest.importorskip("cryptography")
    monkeypatch.syspath_prepend(tmp_path)
    name = f"edits_{tmp_path.name}".lower()
    (tmp_path / f"{name}.py").write_text(APP.format(url=redis_url))
    return name


@pytest.fixture
def encrypted(redis_url):
    with DelayQueue("reminders", url=redis_url, codec=Encrypted(KEYS)) as queue:
        queue.send_delay_msg({"to": "a"}, "1h", id="m")
        yield queue


def test_encrypts_with_the_keys_of_the_program(cli, encrypted, app, editor):
    assert cli("edit", "reminders", "m", '{"to": "x"}', "--app", f"{app}:queue").code == 0
    assert encrypted.get("m").payload == {"to": "x"}
    encrypted.edit("m", payload={"to": "a"})
    assert cli("edit", "reminders", "m", "--app", f"{app}:queue", env=editor(CHANGE)).code == 0
    assert encrypted.get("m").payload == {"to": "b"}
    assert "is queue other, not reminders" in cli("edit", "reminders", "m", "1", "--app", f"{app}:other").line


def test_refuses_an_encrypted_payload_without_keys(cli, encrypted, editor):
    for ended in (cli("edit", "reminders", "m", "1"), cli("edit", "reminders", "m", env=editor(CHANGE))):
        assert ended.code == 2
        assert "is encrypted: give --app" in ended.line
    assert cli("edit", "reminders", "m", "--priority", "1").code == 0
    assert encrypted.get("m").payload == {"to": "a"}


def test_asks_for_reveal_to_edit_what_the_queue_redacts(cli, redis_url, editor):
    with DelayQueue("reminders", url=redis_url, redact=["to"]) as queue:
        queue.send_delay_msg({"to": "a"}, "1h", id="m")
        assert "give --reveal" in cli("edit", "reminders", "m", env=editor(CHANGE)).line
        assert "list it with --reveal" in cli("edit", "reminders", "m", '{"to": "[redacted]"}').line
        assert queue.get("m").payload == {"to": "a"}
        assert cli("edit", "reminders", "m", "--reveal", env=editor(CHANGE)).code == 0
        assert queue.get("m").payload == {"to": "b"}
