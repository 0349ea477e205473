"""`delayq forget`: erases what is kept of messages that have ended."""

from __future__ import annotations

import pytest


@pytest.fixture
def messages(queue):
    """Two dead messages and one that waits."""
    for id in ("ada:1", "bob:1"):
        queue.send_delay_msg({"who": id}, id=id, name="mail")
        (message,) = queue.lease(n=1)
        message.reject("no")
    queue.send_delay_msg(1, "1h", id="ada:2")
    return queue


EMPTY = {"results": 0, "reserved": 0, "remains": 0, "events": 0, "log_entries": 0, "other_events": 0}


def test_forgets_by_id_and_by_name(cli, messages):
    ended = cli("forget", "reminders", "ada:1", "gone", "--yes")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out == "forgot 0 results, 1 dead message, 0 reserved ids, 0 leftovers, 0 events in 0 of the log\n"
    assert messages.get("ada:1") is None
    found = cli("forget", "reminders", "--name", "mail", "--yes", "--json").json
    assert found == {"queue": "reminders", **EMPTY, "deaths": 1, "alive": 0, "alive_ids": [], "dry_run": False}
    assert messages.counts().dead == 0


def test_counts_without_asking_and_tells_who_is_alive(cli, messages):
    ended = cli("forget", "reminders", "--id-prefix", "ada:", "--dry-run")
    assert ended.code == 1
    assert ended.out.startswith("would forget 0 results, 1 dead message, ")
    assert "1 message alive, not forgotten: ada:2; delayq cancel ends them" in ended.err
    assert messages.counts().dead == 2


def test_tells_the_events_of_others_that_go(cli, queue):
    cli("events", "reminders", "--on")
    queue.send_many([1, 2])
    ids = [message.id for message in queue.list("ready").messages]
    queue.cancel(ids[0])
    ended = cli("forget", "reminders", ids[0], "--yes")
    assert (ended.code, ended.err) == (0, "1 event of other messages went with them\n")
    assert "2 events in 2 of the log" in ended.out


@pytest.mark.parametrize("words", [[], ["a", "--name", "mail"], ["--name", "mail", "--id-prefix", "a"]])
def test_asks_for_exactly_one_selection(cli, messages, words):
    ended = cli("forget", "reminders", *words, "--yes")
    assert ended.code == 2
    assert "give ids, or --id-prefix, or --name" in ended.line


def test_asks_before_it_erases(cli, messages):
    assert "give --yes" in cli("forget", "reminders", "ada:1").line
    assert messages.counts().dead == 2
    assert cli("forget", "nowhere", "ada:1", "--yes").code == 3
    assert "id must be 1 to 128" in cli("forget", "reminders", "a b", "--yes").line
