"""`snapshot`: pages of messages for a snapshot, on both kinds of Redis."""

import pytest

from delayq.queue.sweeps.stored_messages import SnapshotReply, snapshot_call
from tests.support.scripts import KEYS, NOW, World, at, calls, plant

WORLD = World(
    pending={"a": 1000, "b": 1000, "c": 1000, "d": 2000, "ghost": 3000},
    ready=["r", "d"],
    unack={"l": 500, "w": 700},
    retries=dict.fromkeys("abcdrlw", 3) | {"w": 2},
    messages={id: id * 4 for id in "abcdrlw"},
    deliveries={
        "d": "pending 2000 1 T-9 T-9 w1",
        "r": "ready -5 0 0 0 -",
        "l": "leased -3 1 T-5 T-5 w1",
        "w": "backoff -4 1 T-7 T-7 w2",
        "g": "garbage -4 1 T-8 T-8 w2",
    },
    headers={"a": "h"},
    attributes={"b": "name=n"},
    errors={"w": "boom"},
)
EVERY = "ready leased backoff retry garbage"


@pytest.fixture
def read(executor):
    plant(executor, WORLD)

    def page(states, **options):
        return executor.call(
            snapshot_call(calls, states, **{"limit": 100, "cursor": "" if not states else "0"} | options)
        )

    return page


def ids(page):
    return [id.decode() for id in page.ids]


def test_pending_messages_are_ordered_by_due_time_with_all_columns(read):
    page = read("")
    assert page == SnapshotReply(
        now=NOW,
        cursor=b"",
        score=b"",
        ids=[b"a", b"b", b"c", b"d"],
        times=[b"%d" % (NOW + due) for due in (1000, 1000, 1000, 2000)],
        sizes=[4, 4, 4, 4],
        retries=[b"3"] * 4,
        records=[None, None, None, page.records[3]],
        headers=[b"h", None, None, None],
        attributes=[None, b"name=n", None, None],
        errors=[None] * 4,
        payloads=[],
    )
    assert page.records[3].startswith(b"pending ")


def test_promoted_messages_are_found_by_their_records(read):
    page = read(EVERY)
    found = dict(zip(ids(page), zip(page.times, page.records, page.errors, page.sizes, strict=True), strict=True))
    assert {id: (time, record.split()[0], error) for id, (time, record, error, _) in found.items()} == {
        "r": (b"", b"ready", None),
        "l": (b"%d" % (NOW + 500), b"leased", None),
        "w": (b"%d" % (NOW + 700), b"backoff", b"boom"),
    }
    assert page.cursor == b""


def test_missing_column_is_empty_and_empty_payload_is_kept(executor):
    plant(executor, World(pending={"a": 5, "b": 6}, messages={"a": "", "b": "bb"}))
    page = executor.call(snapshot_call(calls, "", limit=9, cursor="", byte_limit=100))
    assert (page.ids, page.sizes, page.payloads) == ([b"a", b"b"], [0, 2], [b"", b"bb"])
    assert (page.retries, page.records, page.headers, page.errors) == ([b"3", b"3"], [], [], [])


@pytest.mark.parametrize(
    ("states", "found"), [("leased", "l"), ("ready backoff", "rw"), ("garbage", ""), ("pending", "d")]
)
def test_records_of_other_states_are_left_out(read, states, found):
    assert sorted(ids(read(states))) == sorted(found)


@pytest.mark.parametrize(("low", "high", "found"), [(-5, -5, "r"), (-4, -3, "lw"), (-3, 9, "l"), (0, 9, "")])
def test_records_outside_the_due_times_are_left_out(read, low, high, found):
    assert sorted(ids(read(EVERY, low=NOW + low, high=NOW + high))) == sorted(found)


def test_unreadable_record_is_left_out(executor, read):
    executor.client.hset(KEYS.deliveries, "a", "garbled")
    assert sorted(ids(read(EVERY))) == ["l", "r", "w"]


def test_id_can_look_like_a_due_time(executor):
    plant(executor, World(pending={"a": 5, str(NOW + 5): 6}, messages={"a": "A", str(NOW + 5): "B"}))
    assert ids(executor.call(snapshot_call(calls, "", limit=9, cursor=""))) == ["a", str(NOW + 5)]


def test_pages_continue_after_the_last_id(read):
    pages, cursor, score = [], "", ""
    while not pages or (cursor and len(pages) < 9):
        page = read("", limit=2, cursor=cursor, score=score)
        pages.append(ids(page))
        cursor, score = page.cursor, page.score
    assert pages == [["a", "b"], ["c", "d"], []]


def test_page_after_a_removed_id_starts_with_its_due_time(read):
    assert ids(read("", cursor="bb", score=NOW + 1000)) == ["a", "b", "c", "d"]
    assert ids(read("", cursor="b", score=NOW + 2000)) == ["d"]
    assert ids(read("", cursor="", score=NOW + 1001)) == ["d"]


def test_payloads_are_read_up_to_the_byte_limit(read):
    page = read("", byte_limit=1)
    assert (ids(page), page.payloads, page.cursor, page.score) == (["a"], [b"aaaa"], b"a", b"%d" % (NOW + 1000))
    assert read("", byte_limit=3).payloads == [b"aaaa"]  # a page has at least one
    page = read("", byte_limit=9)  # headers count as well
    assert (page.payloads, page.cursor) == ([b"aaaa", b"bbbb"], b"b")
    assert read("", byte_limit=100).payloads == [b"aaaa", b"bbbb", b"cccc", b"dddd"]
    page = read(EVERY, byte_limit=5)  # a scan cannot stop in the middle
    assert len([payload for payload in page.payloads if payload]) == 2
    assert page.sizes == [4, 4, 4]


def test_snapshot_uses_the_given_time(executor):
    assert executor.call(snapshot_call(at(5), "", limit=1, cursor="")).now == NOW + 5


def test_thousands_of_records_are_read(executor):
    many = [f"m{n}" for n in range(2500)]
    plant(
        executor,
        World(
            retries=dict.fromkeys(many, 3),
            messages=dict.fromkeys(many, "x"),
            deliveries=dict.fromkeys(many, "ready -5 0 0 0 -"),
        ),
    )
    found, cursor, pages = [], b"0", 0
    while cursor and pages < 9:
        page = executor.call(snapshot_call(calls, EVERY, limit=2000, cursor=cursor))
        assert page.retries == [b"3"] * len(page.ids)
        found += ids(page)
        cursor, pages = page.cursor, pages + 1
    assert sorted(found) == sorted(many)
