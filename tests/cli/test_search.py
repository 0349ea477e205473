"""`delayq search`: what contains a text, and how far it has got."""

from __future__ import annotations

import pytest

from delayq import NewMessage


@pytest.fixture
def sent(queue):
    """Three messages, of which two are about ada, and a dead one."""
    queue.send_delay_msg({"to": "ada"}, id="dead")
    with queue.lease() as message:
        message.reject("no such user")
    queue.send_many([NewMessage({"to": to}, delay=3600, id=f"{n}-{to}") for n, to in enumerate(("ada", "bob", "ada"))])
    return queue


def test_prints_what_matches_and_where(cli, sent):
    ended = cli("search", "reminders", "ada")
    assert ended.code == 0
    head, *rows = [line.split() for line in ended.out.splitlines()]
    assert head == ["state", "id", "due", "in", "text"]
    assert [(row[0], row[1]) for row in rows] == [("pending", "0-ada"), ("pending", "2-ada"), ("dead", "dead")]
    assert ended.err == "found 3 in 4 messages\n"


def test_prints_the_error_if_it_matches(cli, sent):
    ended = cli("search", "reminders", "such", "--in", "error", "--state", "dead")
    assert "no such user" in ended.out
    assert ended.err == "found 1 in 1 message\n"


def test_goes_on_at_the_cursor(cli, sent):
    first = cli("search", "reminders", "ada", "--limit", "1")
    found, cursor = first.err.removesuffix("\n").split("; more: --cursor ")
    assert found == "found 1 in 1 message"
    second = cli("search", "reminders", "ada", "--cursor", cursor, "--json").json
    assert [(one["id"], one["in"], one["payload"]) for one in second["matches"]] == [
        ("2-ada", ["payload"], {"to": "ada"}),
        ("dead", ["payload"], {"to": "ada"}),
    ]
    assert (second["searched"], second["cursor"]) == (3, None)


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (["nowhere", "x"], 3, "no queue named 'nowhere'"),
        (["reminders", "x", "--in", "body"], 2, "body"),
        (["reminders", "x", "--state", "completed"], 2, "completed"),
        (["reminders", "x", "--cursor", "x"], 2, "cursor 'x' is not from a search of these states"),
        (["reminders", ""], 2, "text must be what to search for"),
    ],
    ids=["queue", "where", "state", "cursor", "text"],
)
def test_bad_input_is_one_line(cli, sent, arguments, code, line):
    ended = cli("search", *arguments)
    assert ended.code == code
    assert line in ended.line


def test_interrupted_search_prints_where_to_go_on(cli, sent, monkeypatch):
    from delayq import DelayQueue

    search, calls = DelayQueue.search, []

    def interrupted(self, *arguments, **options):
        if calls:
            raise KeyboardInterrupt
        calls.append(options)
        return search(self, *arguments, **{**options, "limit": 1})

    monkeypatch.setattr(DelayQueue, "search", interrupted)
    ended = cli("search", "reminders", "ada")
    assert ended.code == 130
    assert ended.err.splitlines() == ["found 1 in 1 message; more: --cursor pending:1:", "delayq: interrupted"]
