"""The archive of the event log: each event once in Parquet files, and the log trimmed behind it."""

import json
import shutil
import threading
from collections import Counter
from importlib import import_module
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from delayq import ConfigurationError, DelayQueue, EventsLostError, NewMessage
from delayq.archive import ArchiveResult, DuckDB, archive, forget_archive, open_archive, undone
from delayq.archive.archive_files import divide
from delayq.archive.archive_position import ArchivePosition
from delayq.archive.archive_run import ArchiveRun
from delayq.archive.sql_engine import rows_of
from delayq.broker.keys import Keys

KEYS = Keys.of("delayq", "letters")


@pytest.fixture
def queue(redis_url):
    with DelayQueue("letters", url=redis_url, events=True, events_max_len=100_000) as queue:
        queue.send_delay_msg(1, "1h")
        yield queue


def send(queue, entries, *, each=1):
    for _ in range(entries):
        queue.send_many([NewMessage(1, delay="1h") for _ in range(each)])


def kept_offsets(redis_client):
    """Return the offsets that are in the log."""
    return [int(id.partition(b"-")[2]) for id, _ in redis_client.xrange(KEYS.events)]


def stored_positions(redis_client):
    """Return the positions of archives in Redis: path → offset."""
    positions = (value.decode().partition(" ") for value in redis_client.hvals(KEYS.archives))
    return {path: int(offset) for offset, _, path in positions}


def found(path):
    """Count each (offset, index) with a plain Parquet reader, in the files that count."""
    files, _ = divide(str(one) for one in Path(path).rglob("*.parquet") if "_undone" not in one.parts)
    table = ds.dataset([file.path for file in files], format="parquet").to_table(["log_offset", "entry_index"])
    return Counter(zip(table["log_offset"].to_pylist(), table["entry_index"].to_pylist(), strict=True))


def seen_by_others(path):
    """Count the same as a program that reads whatever is in the folders of days."""
    engine = DuckDB()
    pattern = f"SELECT log_offset, entry_index FROM read_parquet('{path}/day=*/*.parquet')"
    table = engine.table(engine._connection.sql(pattern).to_arrow_table())
    return Counter((row["log_offset"], row["entry_index"]) for row in rows_of(engine, table))


def events_of(path, **period):
    engine = DuckDB()
    return rows_of(engine, open_archive(path, **period).table(engine))


@pytest.fixture
def folder(tmp_path):
    return str(tmp_path / "events")


@pytest.fixture
def run(redis_url):
    def made(folder, **options):
        return archive("letters", folder, url=redis_url, **options)

    return made


def test_each_run_adds_the_new_events_to_the_archive(queue, run, redis_client, folder):
    send(queue, 24, each=3)
    result = run(folder, max_entries=10, trim=True, keep=2)
    assert result == ArchiveResult("letters", folder, 1, 25, 25, 73, 3, 23)
    assert result.facts() == {
        "archive": folder,
        "first": 1,
        "last": 25,
        "entries": 25,
        "events": 73,
        "trimmed": 23,
        "lost": [],
        "undone": [],
    }
    assert result.told() == f"archived 73 events in {folder}, offsets 1 to 25; trimmed 23 entries of the log"
    assert run(folder).told() == f"nothing new for {folder}"
    send(queue, 5)
    result = run(folder, trim=True, keep=2)
    assert (result.first, result.last, result.events) == (26, 30, 5)
    assert kept_offsets(redis_client) == [29, 30]
    once = [
        (1, 0),
        *((offset, index) for offset in range(2, 26) for index in range(3)),
        *((n, 0) for n in range(26, 31)),
    ]
    assert found(folder) == seen_by_others(folder) == Counter(once)


def test_batches_are_bounded_by_events(queue, run, folder):
    send(queue, 4, each=30)
    assert run(folder, max_events=60).batches == 3  # 1 + 30, 30 + 30, 30


def test_archive_has_what_the_log_has(queue, run, folder):
    send(queue, 3, each=2)
    run(folder)
    columns = ("log_offset", "event_at", "kind", "id", "due")
    stored = [tuple(row[name] for name in columns) for row in events_of(folder)]
    assert stored == [(one.offset, one.at, one.kind, one.id, one.due) for one in queue.events()]
    at = stored[3][1]
    assert [row["log_offset"] for row in events_of(folder, start=at)] == [one[0] for one in stored if one[1] >= at]
    assert [row["log_offset"] for row in events_of(folder, until=at)] == [one[0] for one in stored if one[1] < at]


def test_log_is_not_trimmed_by_default(queue, run, redis_client, folder):
    send(queue, 9)
    run(folder)
    assert kept_offsets(redis_client) == list(range(1, 11))
    assert stored_positions(redis_client) == {folder: 10}


@pytest.mark.parametrize(("keep", "first"), [(0, None), (1, 12), (4, 9), (12, 1), (1000, 1)])
def test_keep_leaves_the_latest_entries_in_the_log(queue, run, redis_client, folder, *, keep, first):
    send(queue, 11)
    result = run(folder, trim=True, keep=keep)
    assert kept_offsets(redis_client) == list(range(first or 13, 13))
    assert result.trimmed == (first or 13) - 1
    assert result.kept_for is None


def test_log_is_trimmed_in_slices(queue, run, redis_client, folder, monkeypatch):
    monkeypatch.setattr(import_module("delayq.archive.archive_run"), "SLICE", 3)
    send(queue, 11)
    redis_client.config_resetstat()
    assert run(folder, trim=True, keep=2).trimmed == 10
    assert kept_offsets(redis_client) == [11, 12]
    assert redis_client.info("commandstats")["cmdstat_xtrim"]["calls"] == 4


def test_log_numbered_by_time_is_archived_and_trimmed(queue, run, redis_client, folder):
    redis_client.delete(KEYS.events)
    for at in range(1, 10):
        redis_client.xadd(KEYS.events, {"kind": "sent", "at": at * 1000, "ids": "m"}, id=f"{at * 10**12}-0")
    result = run(folder, max_entries=4, trim=True, keep=0)
    assert (result.entries, result.events, result.batches) == (None, 9, 3)
    assert redis_client.xlen(KEYS.events) == 1  # the last one tells that nothing is lost after it


def test_batch_in_progress_stays_in_the_log(queue, run, redis_client, folder):
    send(queue, 29)
    firsts = []
    run(
        folder,
        max_entries=10,
        trim=True,
        keep=0,
        on_progress=lambda _: firsts.append([*kept_offsets(redis_client), None][0]),
    )
    assert firsts == [11, 21, None, None]


def test_log_is_trimmed_up_to_the_slowest_archive(queue, run, redis_client, redis_url, tmp_path):
    slow, fast = str(tmp_path / "slow"), str(tmp_path / "fast")
    send(queue, 9)
    assert run(slow, trim=True, keep=0).kept_for is None
    send(queue, 10)
    result = run(fast, trim=True, keep=0)
    assert kept_offsets(redis_client)[0] == 11
    assert (result.trimmed, result.kept_for) == (0, slow)
    assert result.told().endswith(f"; the log is kept for the archive {slow}")
    assert run(slow, trim=True, keep=0).kept_for is None  # both have come as far
    send(queue, 1)
    assert run(slow, trim=True, keep=0).kept_for == fast
    assert kept_offsets(redis_client) == [21]
    assert forget_archive("letters", f"{fast}/", url=redis_url)
    assert not forget_archive("letters", fast, url=redis_url)
    assert run(slow, trim=True, keep=0).trimmed == 1


def test_position_of_an_archive_is_stored_before_its_first_batch(queue, run, redis_client, folder, monkeypatch):
    send(queue, 9)

    def killed(*_):
        raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr(ArchiveRun, "_write_batch", killed)
        with pytest.raises(SystemExit):
            run(folder)
    assert stored_positions(redis_client) == {folder: 0}
    assert run(folder).first == 1


def test_endless_archive_runs_until_it_is_stopped(queue, run, folder):
    stop, reported = threading.Event(), []

    def on_progress(result):
        reported.append(result.events)
        if result.events < 4:
            send(queue, 1)
        else:
            stop.set()

    result = run(folder, once=False, every="10ms", on_progress=on_progress, stop=stop)
    assert result.first == 1
    assert result.events == result.entries == 4
    assert found(folder) == seen_by_others(folder) == Counter({(event.offset, 0): 1 for event in queue.events()})


def test_stop_ends_a_run_between_two_batches(queue, run, folder):
    send(queue, 9)
    stop = threading.Event()
    assert run(folder, max_entries=3, on_progress=lambda _: stop.set(), stop=stop).last == 3
    assert run(folder).first == 4


def test_empty_log_makes_an_empty_archive(redis_url, run, folder):
    with DelayQueue("letters", url=redis_url, events=True) as queue:
        queue.purge()
        assert run(folder).events == 0
        assert events_of(folder) == []
        queue.send_delay_msg(1, "1h")
    assert run(folder).events == 1


def test_positions_in_redis_have_any_path(queue, run, redis_client, tmp_path):
    folder = str(tmp_path / "a folder" / "é")
    run(folder)
    assert stored_positions(redis_client) == {folder: 1}
    assert ArchivePosition(1, "b") < ArchivePosition(2, "a")


def test_errors_are_one_sentence(queue, run, redis_url, redis_client, tmp_path):
    folder = str(tmp_path / "events")
    with pytest.raises(ConfigurationError, match="there is no queue 'lettres' under the prefix 'delayq'"):
        archive("lettres", folder, url=redis_url)
    with DelayQueue("mails", url=redis_url) as mails:
        mails.send_delay_msg(1)
    with pytest.raises(ConfigurationError, match=r"queue 'mails' has no event log: .*events=True"):
        archive("mails", folder, url=redis_url)
    with pytest.raises(ConfigurationError, match="keep must be a whole number"):
        run(folder, keep=-1)
    with pytest.raises(ConfigurationError, match="there is no archive at /nowhere"):
        open_archive("/nowhere")
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match=r"cannot write to .*file"):
        run(str(tmp_path / "file"))
    with pytest.raises(ConfigurationError, match="cannot write to ftp://x/y"):
        run("ftp://x/y")
    send(queue, 3)
    run(folder)
    with DelayQueue("mails", url=redis_url, events=True) as mails:
        mails.send_delay_msg(1)
    with pytest.raises(ConfigurationError, match="belongs to queue 'letters', not to 'mails'"):
        archive("mails", folder, url=redis_url)
    send(queue, 3)
    redis_client.xtrim(KEYS.events, minid="0-6", approximate=False)
    with pytest.raises(EventsLostError, match="queue 'letters' has lost 1 entry, offset 5: deleted"):
        run(folder)
    result = run(folder, fail_on_data_loss=False)
    assert (result.events, result.lost) == (2, ((5, 5),))
    assert result.told().endswith("; the log had lost 1 entry, offset 5")
    facts = Path(folder, "_delayq", "part-00000.txt")
    facts.write_text(json.dumps(json.loads(facts.read_text()) | {"position": None}))
    with pytest.raises(ConfigurationError, match=rf"{folder} contains an archive, but there is no checkpoint at"):
        run(folder)
    facts.write_text('{"schema": 5}')
    for use in (run, open_archive):
        with pytest.raises(ConfigurationError, match=r"a later delayq wrote the archive at .*: its schema is 5"):
            use(folder)


def test_second_process_on_a_folder_is_refused_or_waits(queue, run, redis_client, folder):
    refused = []

    def other(_):
        with pytest.raises(ConfigurationError, match="another process archives to"):
            run(folder)
        refused.append(True)

    run(folder, on_progress=other)
    assert refused

    def beside(_):
        assert run(folder, wait="10s").events == 0

    send(queue, 2)
    assert run(folder, on_progress=beside).last == kept_offsets(redis_client)[-1]

    # On another machine, where the lock is not seen.
    def elsewhere(result):
        facts = Path(folder, "_delayq", "part-00000.txt")
        stored = json.loads(facts.read_text())
        stored["position"]["batch"] += 1
        facts.write_text(json.dumps(stored))

    send(queue, 3)
    with pytest.raises(ConfigurationError, match="another process archives to"):
        run(folder, max_entries=1, on_progress=elsewhere)


def roll_back(redis_client, to):
    """Let the log end at an offset, as after a crash that has undone what followed."""
    entries = redis_client.xrange(KEYS.events, max=f"0-{to}")
    redis_client.delete(KEYS.events)
    for id, fields in entries:
        redis_client.xadd(KEYS.events, fields, id=id)


def test_archive_is_cut_back_with_a_log_that_was_rolled_back(queue, run, redis_client, folder):
    options = {"max_entries": 6}
    send(queue, 9, each=2)
    run(folder, **options)
    assert list(Path(folder).glob("day=*/*.parquet"))  # merged
    send(queue, 5, each=2)
    run(folder, **options)  # not merged
    lost = [(row["log_offset"], row["id"]) for row in events_of(folder) if row["log_offset"] > 8]

    roll_back(redis_client, 8)
    send(queue, 12)
    result = run(folder, **options, trim=True, keep=0)
    assert result.undone == ((9, 15, len(lost)),)
    assert f"{len(lost)} archived events, offsets 9 to 15, moved to _undone" in result.told()
    assert (result.first, result.last, result.trimmed) == (9, 20, 20)
    assert list(stored_positions(redis_client).values()) == [20]
    assert redis_client.hlen(KEYS.archives) == 1
    moved = ds.dataset(sorted(map(str, Path(folder, "_undone").rglob("*.parquet")))).to_table(["log_offset", "id"])
    assert sorted(zip(*moved.to_pydict().values(), strict=True)) == sorted(lost)
    places = [(1, 0), *((n, index) for n in range(2, 9) for index in range(2)), *((n, 0) for n in range(9, 21))]
    assert found(folder) == seen_by_others(folder) == Counter(places)

    # Once more, to a log that is shorter than the archive.
    send(queue, 3)
    run(folder, **options)
    assert [one.first for one in undone(folder)] == [9]
    roll_back(redis_client, 22)
    result = run(folder, **options)
    assert (result.undone, result.batches) == (((23, 23, 1),), 0)
    send(queue, 2)
    assert run(folder, **options).last == 24
    assert len(events_of(folder)) == len(places) + 4


def test_log_that_was_deleted_needs_a_new_archive(queue, run, redis_client, folder):
    send(queue, 9)
    run(folder)
    redis_client.delete(KEYS.events)
    for _ in range(2):
        for allowed in (False, True):
            with pytest.raises(EventsLostError, match=r"was deleted and begins anew: .* archive it in a new folder"):
                run(folder, fail_on_data_loss=not allowed)
        send(queue, 15)
    assert len(events_of(folder)) == 10


def to_spark(folder, *, ended, begun=None):
    """Make an archive look as one that was written on Spark, whose last batches ended at offsets."""
    facts = Path(folder, "_delayq", "part-00000.txt")
    stored = json.loads(facts.read_text())
    position = stored.pop("position")
    facts.write_text(json.dumps(stored | {"schema": 3, "oldest": 3}) + "\n")
    checkpoint = Path(folder, "_checkpoint")
    for name in ("offsets", "commits"):
        (checkpoint / name).mkdir(parents=True, exist_ok=True)
    (checkpoint / "metadata").write_text(json.dumps({"id": position["query"]}))
    for number, offset in enumerate([*ended, *([] if begun is None else [begun])]):
        text = json.dumps({"queue": "letters", "offset": offset})
        (checkpoint / "offsets" / str(number)).write_text(f"v1\n{{}}\n{text}")
        if number < len(ended):
            (checkpoint / "commits" / str(number)).write_text("v1\n{}")


@pytest.mark.parametrize("begun", [None, 8, 10])
def test_archive_that_was_written_on_spark_is_continued(queue, run, folder, begun):
    send(queue, 7)
    run(folder, max_entries=4)  # batches 0 and 1, up to 4 and 8
    to_spark(folder, ended=[4, 8] if begun != 8 else [4], begun=begun)
    send(queue, 3)
    result = run(folder)
    assert (result.first, result.last) == (5 if begun == 8 else 9, 11)
    assert found(folder) == Counter({(n, 0): 1 for n in range(1, 12)})
    assert run(folder).batches == 0
    shutil.rmtree(f"{folder}/_checkpoint")
    assert run(folder).batches == 0
