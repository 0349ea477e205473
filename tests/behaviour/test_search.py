"""`queue.search`: messages that contain a text in their payload, error or headers."""

from __future__ import annotations

import json

import pytest

from delayq import ConfigurationError, NewMessage
from tests.behaviour.places import LIVING, bring, everywhere


def found(page) -> list[str]:
    return [match.message.id for match in page.matches]


@everywhere
def test_text_is_found_in_each_part(open_queue):
    queue = open_queue()
    queue.send_many(
        [
            NewMessage({"to": "ada"}, id="a", delay=60),
            NewMessage("hay", id="b", delay=70, headers={"user": "ada"}),
            NewMessage("hay", id="c", delay=80),
        ]
    )
    page = queue.search("ada")
    assert [(match.message.id, match.where) for match in page.matches] == [("a", ("payload",)), ("b", ("headers",))]
    assert (page.searched, page.cursor) == (3, None)
    assert page.matches[0].message.payload == {"to": "ada"}
    assert found(queue.search("ada", where="headers")) == ["b"]
    assert found(queue.search("ada", where=["payload", "error"])) == ["a"]
    assert found(queue.search("Ada")) == []


@pytest.mark.parametrize("state", [*LIVING, "dead"])
def test_text_is_found_in_each_state(open_queue, state):
    queue = open_queue()
    bring(queue, state, payload="a needle")
    (match,) = queue.search("needle").matches
    assert (match.message.id, match.message.state, match.where) == ("m", state, ("payload",))
    assert found(queue.search("needle", state=state)) == ["m"]
    assert found(queue.search("needle", state="garbage")) == []


def test_error_and_reason_are_searched(open_queue):
    queue = open_queue()
    bring(queue, "dead")
    assert queue.search("no such user").matches[0].where == ("error",)
    bring(queue, "backoff")
    assert queue.search("busy", state="backoff").matches[0].where == ("error",)


@pytest.mark.parametrize("text", ['say "hi"', "wörld", "back\\slash", "tab\there"])
def test_text_is_found_however_json_escapes_it(open_queue, text):
    queue = open_queue(codec="bytes")
    for id, ascii_only in (("a", True), ("b", False)):
        payload = json.dumps({"deep": [{"text": f"<{text}>"}]}, ensure_ascii=ascii_only).encode()
        queue.send_delay_msg(payload, 60, id=id)
    assert found(queue.search(text)) == ["a", "b"]


def test_large_payload_is_searched_to_its_end(open_queue):
    queue = open_queue()
    queue.send_many([NewMessage("x" * 900_000 + end, id=end, delay=60) for end in ("one", "two", "three")])
    assert found(queue.search("xtwo")) == ["two"]


def test_search_goes_on_at_its_cursor(open_queue):
    queue = open_queue()
    queue.send_many([NewMessage(f"n{n}", id=f"{n:04}", delay=60 + n) for n in range(600)])
    ids, cursor = [], ""
    while cursor is not None:
        page = queue.search("n", limit=40, cursor=cursor)
        assert len(page.matches) <= 40
        ids, cursor = ids + found(page), page.cursor
    assert ids == [f"{n:04}" for n in range(600)]


def test_search_stops_after_so_many_messages(open_queue):
    queue = open_queue()
    queue.send_many([NewMessage(n, id=f"{n:04}", delay=60 + n) for n in range(600)])
    page = queue.search("599", max_searched=300)
    assert (page.matches, page.searched) == ([], 500)
    page = queue.search("599", max_searched=300, cursor=page.cursor)
    assert (found(page), page.searched, page.cursor) == (["0599"], 100, None)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"text": ""}, "text must be what to search for, not ''"),
        ({"text": b"x"}, "text must be"),
        ({"where": "body"}, "where must be one or several of payload, error, headers, not 'body'"),
        ({"where": []}, "where must be"),
        ({"state": "done"}, "state must be one or several of pending"),
        ({"limit": 0}, "limit must be"),
        ({"max_searched": 0}, "max_searched must be"),
        ({"cursor": "x"}, "cursor 'x' is not from a search of these states"),
        ({"cursor": "dead:0:", "state": "pending"}, "is not from a search of these states"),
    ],
    ids=range(9),
)
def test_bad_input_is_refused(open_queue, arguments, error):
    queue = open_queue()
    with pytest.raises(ConfigurationError, match=error):
        queue.search(**{"text": "x", **arguments})
