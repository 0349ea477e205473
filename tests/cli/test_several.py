"""Commands over several queues: by a pattern, or by names."""

from __future__ import annotations

import json

import pytest

from delayq import DelayQueue, Reject

LOOKING = [
    ("workers",),
    ("stats",),
    ("why",),
    ("limits", "list"),
    ("schedules", "list"),
    ("dead", "list"),
    ("dead", "groups"),
]


@pytest.fixture
def queues(redis_url):
    """Three queues with a message each, by name."""
    found = {name: DelayQueue(name, url=redis_url) for name in ("mails", "tenant-a", "tenant-b")}
    for name, queue in found.items():
        queue.send(f"hello {name}", delay="1h", id="m")
    yield found
    for queue in found.values():
        queue.close()


def lines_of(ended) -> list[dict]:
    return [json.loads(line) for line in ended.out.splitlines()]


@pytest.mark.parametrize("words", LOOKING, ids=" ".join)
def test_pattern_looks_at_each_queue_that_matches(cli, queues, words):
    ended = cli(*words, "tenant-*")
    assert ended.code == 0
    titles = [line for line in ended.out.splitlines() if line.startswith(("mails", "tenant"))]
    assert titles == ["tenant-a:", "tenant-b:"]


def test_json_of_several_queues_is_a_line_each_with_its_queue(cli, queues):
    for words in LOOKING:
        assert [row["queue"] for row in lines_of(cli(*words, "*", "--json"))] == [*queues]
    for queue in queues.values():
        queue.reschedule("m", 0)
    queues["mails"].callback(lambda _: (_ for _ in ()).throw(Reject("no such user")))
    queues["mails"].start_consume(burst=True).wait()
    mails, *others = lines_of(cli("dead", "list", "*", "--json"))
    assert [(one["id"], one["reason"]) for one in mails["messages"]] == [("m", "no such user")]
    assert [row["messages"] for row in others] == [[], []]


def test_search_of_a_pattern_names_the_queue_of_each_match(cli, queues):
    rows = lines_of(cli("search", "*", "hello tenant", "--json"))
    assert {row["queue"]: len(row["matches"]) for row in rows} == {"mails": 0, "tenant-a": 1, "tenant-b": 1}


def test_pause_and_resume_take_several_names_and_patterns(cli, queues):
    ended = cli("pause", "mails", "tenant-*", "mails", "--reason", "deploy")
    assert ended.code == 0
    assert ended.out.splitlines() == [f"{name}  paused until it is resumed: deploy" for name in queues]
    assert all(queue.counts().paused for queue in queues.values())
    assert cli("resume", "tenant-b", "mails").out == "tenant-b  resumed\nmails  resumed\n"
    assert [bool(queue.counts().paused) for queue in queues.values()] == [False, True, False]


def test_one_queue_that_fails_does_not_stop_the_others(cli, queues):
    ended = cli("pause", "mails", "nowhere", "tenant-a")
    assert ended.code == 3
    assert ended.line == "no queue named 'nowhere'"
    assert [bool(queue.counts().paused) for queue in queues.values()] == [True, True, False]


def test_pattern_that_no_queue_matches_is_told(cli, queues):
    ended = cli("why", "nobody-*")
    assert (ended.code, ended.out) == (3, "")
    assert "no queue matches 'nobody-*'" in ended.err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("stats", "a b"), "queue name must be"),
        (("stats", "{a}*"), "QUEUE must be made of"),
        (("stats", "mails", "tenant-a", "--watch"), "--watch takes one QUEUE"),
        (("stats", "*", "--engine", "streams"), "stream must be"),
        (("cancel", "tenant-*", "m"), "queue name must be"),
        (("purge", "*", "--yes"), "queue name must be"),
    ],
)
def test_wrong_patterns_are_one_line(cli, queues, words, text):
    ended = cli(*words)
    assert ended.code == 2
    assert text in ended.line
    assert all(queue.counts().living == 1 for queue in queues.values())
