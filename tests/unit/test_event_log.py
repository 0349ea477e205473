"""Reading entries of the event log, including those that a later version of delayq may write."""

import pytest

from delayq import EventKind
from delayq.broker.event_log import EventEntry, read_entries, read_tail
from delayq.queue.inspecting.event_log import MessageEvent, expand
from delayq.queue.sweeps.bulk_runs import RunInfo, RunRecord, read, read_run, read_runs
from delayq.values.times import from_millis

AT = 1_700_000_000_000


def entry(kind="sent", **columns):
    return EventEntry(7, kind, AT, {name: cells.encode() for name, cells in columns.items()})


def test_each_column_is_split_by_message():
    first, second = expand(
        entry(
            "dead",
            run="r",
            holder="w",
            ids="a b",
            dues=f"{AT - 5} -",
            tokens="8 9",
            attempts="1 2",
            retries="- 3",
            reasons="no such user\n",
            errors="\nboom",
        )
    )
    assert first == MessageEvent(
        offset=7,
        index=0,
        kind=EventKind.DEAD,
        at=from_millis(AT),
        id="a",
        due=from_millis(AT - 5),
        attempt=1,
        token=8,
        retries_left=None,
        holder="w",
        run="r",
        reason="no such user",
        error=None,
    )
    assert (second.index, second.id, second.due, second.attempt, second.token) == (1, "b", None, 2, 9)
    assert (second.retries_left, second.reason, second.error) == (3, None, "boom")


def test_attributes_without_a_column_are_none():
    (event,) = expand(entry("cancelled", ids="a"))
    values = {name: getattr(event, name) for name in MessageEvent.__slots__}
    assert {name for name, value in values.items() if value is not None} == {"offset", "index", "kind", "at", "id"}


def test_entry_without_ids_is_one_event():
    assert expand(entry("purged", count="6")) == [MessageEvent(7, 0, EventKind.PURGED, from_millis(AT), None)]


def test_unknown_kinds_and_columns_are_accepted():
    (event,) = expand(entry("frozen", ids="a", degrees="-5"))
    assert (event.kind, type(event.kind), event.id) == ("frozen", str, "a")


def test_column_that_is_too_short_is_filled_with_none():
    assert [event.token for event in expand(entry(ids="a b c", tokens="1 2"))] == [1, 2, None]


@pytest.mark.table("kind", EventKind)
def test_every_kind_is_found_by_its_name(kind):
    (event,) = expand(entry(kind.value, ids="a"))
    assert event.kind is kind


FIELDS = [b"kind", b"acked", b"at", b"1700000000000", b"ids", b"a b"]
READ = [EventEntry(3, "acked", AT, {"ids": b"a b"})]


def test_xrange_and_xread_replies_are_read_in_both_protocols():
    assert read_entries([]) == []
    assert read_entries([[b"0-3", FIELDS]]) == READ
    assert read_tail(None) == []
    assert read_tail({}) == []
    assert read_tail([[b"the key", [[b"0-3", FIELDS]]]]) == READ
    assert read_tail({b"the key": [[b"0-3", FIELDS]]}) == READ


FOREIGN = [
    [b"hello", b"world"],
    [b"\xff", b"world"],
    [b"kind", b"sent"],
    [b"kind", b"sent", b"at", b"noon"],
    [b"kind", b"sent", b"at", b"9" * 30],
    [b"kind", b"", b"at", b"1700000000000", b"ids", b"a"],
]


@pytest.mark.parametrize("fields", FOREIGN, ids=str)
def test_foreign_entry_has_no_events(fields):
    (stranger,) = read_entries([[b"0-4", fields]])
    assert stranger == EventEntry(4, "", 0, {})
    assert expand(stranger) == []


def test_run_ledger_is_read_in_both_protocols():
    record = b"committed 1700000000000 1700000000005 3 1 2 3 4 5 6"
    run = RunRecord("committed", AT, AT + 5, 3, 1, 2, 3, 4, 5, 6)
    assert read_run(record) == run
    assert read_runs([]) == read_runs({}) == {}
    assert read_runs([b"r", record]) == read_runs({b"r": record}) == {"r": run}


def test_run_info_has_datetimes():
    assert read("r", RunRecord("writing", AT, 0, -1, 1, 2, 3, 4, 5, 6)) == RunInfo(
        run="r",
        state="writing",
        started=from_millis(AT),
        ended=None,
        new=1,
        exists=2,
        replaced=3,
        running=4,
        settled=5,
        refused=6,
    )
    assert read("r", RunRecord("aborted", AT, AT + 5, -1, 0, 0, 0, 0, 0, 0)).ended == from_millis(AT + 5)
