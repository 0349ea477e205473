"""The archive of the event log: each event once in Parquet files, and the log trimmed behind it."""

import json
import shutil
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pyarrow.dataset as ds
import pytest

from delayq import ConfigurationError, DelayQueue, EventsLostError, NewMessage
from delayq.broker.keys import Keys
from delayq.bulk.connection import TargetQueue
from delayq.spark import archive, forget_archive, read_archive
from delayq.spark.datasource.compat import LIMITS_BATCHES
from delayq.spark.pipelines.archiving import rollback
from delayq.spark.pipelines.archiving.archive_files import divide
from delayq.spark.pipelines.archiving.archive_run import ArchivePosition, ArchiveResult, ArchiveRun
from tests.support import processes

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


# A run and the progress of its query


class Query:
    """A query that reports one batch per poll, then ends: (number, start, end, rows)."""

    def __init__(self, *reports, id="q1"):
        self.id = id
        self.to_come = list(reports)
        self.recentProgress = []
        self.stopped = False
        self.busy = 0
        """How often it still says that a batch is in progress."""

    @property
    def status(self):
        self.busy -= 1
        return {"isTriggerActive": self.busy >= 0}

    def awaitTermination(self, timeout):  # noqa: N802 - Spark's name
        if self.to_come:
            number, start, end, rows = self.to_come.pop(0)
            self.recentProgress.append(progress(number, start, end, rows))
        return not self.to_come

    def stop(self):
        assert self.busy <= 0, "stopped within a batch"
        self.stopped = True


def progress(number, start, end, rows):
    texts = [json.dumps(None if at is None else {"queue": "letters", "offset": at}) for at in (start, end)]
    source = SimpleNamespace(startOffset=texts[0], endOffset=texts[1])
    return SimpleNamespace(batchId=number, numInputRows=rows, sources=[source])


@pytest.fixture
def run(redis_url):
    def made(query, *, keep=None, folder="/a", endless=False, on_progress=lambda _: None, begin=0):
        run = ArchiveRun(TargetQueue("letters", redis_url), folder, keep, begin)
        run.wait(query, on_progress, endless=endless)
        return run.result

    return made


def test_run_adds_up_its_batches(queue, run):
    query = Query((0, None, 10, 100), (1, 10, 20, 90), (2, 20, 23, 3))
    result = run(query)
    assert result == ArchiveResult("letters", "/a", 1, 23, 23, 193, 3, 0)
    assert result.facts() == {
        "archive": "/a",
        "first": 1,
        "last": 23,
        "entries": 23,
        "events": 193,
        "trimmed": 0,
        "lost": [],
        "undone": [],
    }
    assert result.told() == "archived 193 events in /a, offsets 1 to 23"


def test_first_batch_starts_where_the_log_starts(queue, run):
    assert run(Query((0, None, 10, 100)), begin=4).first == 5


def test_polls_without_new_events_are_not_batches(queue, run):
    result = run(Query((5, 10, 10, 0)))
    assert result == ArchiveResult("letters", "/a", None, None, 0, 0, 0, 0)
    assert result.told() == "nothing new for /a"
    assert run(Query((5, 10, 10, 0), (5, 10, 12, 7), (6, 12, 12, 0))).entries == 2


def test_entries_of_a_log_numbered_by_time_are_not_counted(queue, run):
    result = run(Query((0, 10**18, 2 * 10**18, 7)))
    assert (result.entries, result.events) == (None, 7)


def test_progress_is_reported_at_every_poll(queue, run):
    reported = []
    run(
        Query((0, None, 10, 100), (1, 10, 20, 90), (2, 20, 23, 3)),
        on_progress=lambda result: reported.append(result.events),
    )
    assert reported == [100, 190, 193]


def test_log_is_not_trimmed_by_default(queue, run, redis_client):
    send(queue, 9)
    run(Query((0, None, 10, 10)))
    assert kept_offsets(redis_client) == list(range(1, 11))
    assert stored_positions(redis_client) == {"/a": 10}


@pytest.mark.parametrize(("keep", "first"), [(0, 11), (1, 10), (4, 7), (10, 1), (1000, 1)])
def test_keep_leaves_the_latest_entries_in_the_log(queue, run, redis_client, keep, first):
    send(queue, 11)
    result = run(Query((0, None, 10, 10)), keep=keep)
    assert kept_offsets(redis_client) == list(range(first, 13))
    assert result.trimmed == first - 1
    assert result.kept_for is None


def test_log_is_trimmed_in_batches(queue, run, redis_client, monkeypatch):
    monkeypatch.setattr(sys.modules[ArchiveRun.__module__], "SLICE", 3)
    send(queue, 11)
    redis_client.config_resetstat()
    assert run(Query((0, None, 10, 10)), keep=0).trimmed == 10
    assert kept_offsets(redis_client) == [11, 12]
    assert redis_client.info("commandstats")["cmdstat_xtrim"]["calls"] == 4


def test_log_numbered_by_time_is_trimmed(queue, run, redis_client):
    redis_client.delete(KEYS.events)
    for at in range(1, 10):
        redis_client.xadd(KEYS.events, {"kind": "sent", "at": at * 1000, "ids": "m"}, id=f"{at * 10**12}-0")
    run(Query((0, None, 5 * 10**18, 5)), keep=0)
    assert redis_client.xlen(KEYS.events) == 4


def test_running_query_trims_up_to_the_batch_before_the_last(queue, run, redis_client):
    send(queue, 29)
    firsts = []
    query = Query((0, None, 10, 10), (1, 10, 20, 10), (2, 20, 25, 5))
    run(query, keep=0, on_progress=lambda _: firsts.append(kept_offsets(redis_client)[0]))
    assert firsts == [1, 11, 26]


def test_log_is_trimmed_up_to_the_slowest_archive(queue, run, redis_client, redis_url):
    send(queue, 29)
    assert run(Query((0, None, 10, 10), id="slow"), folder="/slow", keep=0).kept_for is None
    result = run(Query((0, None, 20, 20), id="fast"), folder="/fast", keep=0, begin=10)
    assert kept_offsets(redis_client)[0] == 11
    assert (result.trimmed, result.kept_for) == (0, "/slow")
    assert result.told().endswith("; the log is kept for the archive /slow")
    assert run(Query((1, 10, 20, 10), id="slow"), folder="/slow", keep=0).kept_for is None  # both have come as far
    assert run(Query((2, 20, 30, 10), id="slow"), folder="/slow", keep=0).kept_for == "/fast"
    assert kept_offsets(redis_client)[0] == 21
    assert forget_archive("letters", "/fast/", url=redis_url)
    assert not forget_archive("letters", "/fast", url=redis_url)
    assert run(Query((3, 30, 30, 0), id="slow"), folder="/slow", keep=0).trimmed == 10


def test_position_of_an_archive_is_stored_before_its_first_batch(queue, run, redis_client):
    send(queue, 9)
    seen = []
    query = Query((0, None, 10, 10))
    query.awaitTermination = lambda _: seen.append(stored_positions(redis_client)) or True
    run(query, begin=3)
    assert seen == [{"/a": 3}]


def test_next_run_trims_after_a_killed_run(queue, run, redis_client):
    send(queue, 9)
    query = Query((0, None, 10, 10))

    def killed(_):
        raise SystemExit

    query.awaitTermination = killed
    with pytest.raises(SystemExit):
        run(query, keep=0)
    assert kept_offsets(redis_client)[0] == 1
    assert run(Query((1, 10, 10, 0)), keep=0).trimmed == 10


def test_ctrl_c_ends_an_endless_run(queue, run):
    query = Query(*((n, n, n + 1, 1) for n in range(10)))

    reported = []

    def on_progress(result):
        reported.append(result.events)
        if reported == [1, 2, 3]:
            query.busy = 3
            raise KeyboardInterrupt

    assert run(query, endless=True, on_progress=on_progress).last == 3
    assert query.stopped


def test_ctrl_c_in_a_finite_run_is_raised(queue, run):
    query = Query((0, None, 10, 10), (1, 10, 11, 1))

    def on_progress(_):
        query.busy = 3
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(query, on_progress=on_progress)
    assert query.stopped


def test_position_is_stored_with_any_path(queue, run, redis_client):
    run(Query((0, None, 1, 1)), folder="s3a://bucket/a folder/é")
    assert stored_positions(redis_client) == {"s3a://bucket/a folder/é": 1}
    assert ArchivePosition(1, "b") < ArchivePosition(2, "a")


# In Spark


def found(path):
    """Count each (offset, index) with a plain Parquet reader, in the files that count."""
    files, _ = divide(map(str, Path(path).rglob("*.parquet")))
    table = ds.dataset([file.path for file in files], format="parquet").to_table(["log_offset", "entry_index"])
    return Counter(zip(table["log_offset"].to_pylist(), table["entry_index"].to_pylist(), strict=True))


@pytest.fixture
def folder(tmp_path):
    return str(tmp_path / "events")


@pytest.mark.spark
def test_each_run_adds_the_new_events_to_the_archive(spark, queue, redis_url, redis_client, folder):
    send(queue, 24, each=3)
    result = archive(spark, "letters", folder, url=redis_url, max_entries=10, trim=True, keep=2)
    assert result == ArchiveResult("letters", folder, 1, 25, 25, 73, 3 if LIMITS_BATCHES else 1, 23)
    assert archive(spark, "letters", folder, url=redis_url).batches == 0
    send(queue, 5)
    result = archive(spark, "letters", folder, url=redis_url, trim=True, keep=2)
    assert (result.first, result.last, result.events) == (26, 30, 5)
    assert kept_offsets(redis_client) == [29, 30]
    once = [
        (1, 0),
        *((offset, index) for offset in range(2, 26) for index in range(3)),
        *((n, 0) for n in range(26, 31)),
    ]
    assert found(folder) == Counter(once)


@pytest.mark.spark
def test_archive_has_the_columns_of_the_log(spark, queue, redis_url, folder):
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    try:
        send(queue, 3)
        archive(spark, "letters", folder, url=redis_url)
        events = list(queue.events())
        read = read_archive(spark, folder)
        log = spark.read.format("delayq").options(url=redis_url, read="events").load("letters")
        assert read.schema == log.schema
        assert read.exceptAll(log).count() == 0
        assert read.count() == len(events)
        table = ds.dataset(folder, format="parquet").to_table(["event_at", "id"])
        assert set(table["event_at"].to_pylist()) == {
            event.at for event in events
        }  # microseconds of UTC, for every reader
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert spark.conf.get("spark.sql.parquet.outputTimestampType") == "INT96"  # the session is left as it was


@pytest.mark.spark
def test_empty_log_makes_an_empty_archive(spark, redis_url, folder):
    with DelayQueue("letters", url=redis_url, events=True) as queue:
        queue.purge()
        assert archive(spark, "letters", folder, url=redis_url).events == 0
        assert read_archive(spark, folder).count() == 0
        queue.send_delay_msg(1, "1h")
    assert archive(spark, "letters", folder, url=redis_url).events == 1


@pytest.mark.spark
def test_endless_archive_runs_until_ctrl_c(spark, queue, redis_url, folder):
    reported = []

    def on_progress(result):
        reported.append(result.events)
        if result.events < 4:
            send(queue, 1)
        elif reported[-2] < 4:  # Ctrl-C comes once
            raise KeyboardInterrupt

    result = archive(spark, "letters", folder, url=redis_url, once=False, every="100ms", on_progress=on_progress)
    assert result.first == 1
    assert result.events == result.entries >= 4
    assert list(Path(folder).glob("day=*/*.parquet"))  # it has merged its batches
    assert all(len(list(batch.rglob("*.parquet"))) <= 1 for batch in Path(folder).glob("_recent/part=*"))
    archive(spark, "letters", folder, url=redis_url)
    assert found(folder) == Counter({(event.offset, 0): 1 for event in queue.events()})


@pytest.mark.spark
def test_errors_are_one_sentence(spark, queue, redis_url, redis_client, tmp_path):
    folder = str(tmp_path / "events")
    with pytest.raises(ConfigurationError, match="there is no queue 'lettres' under the prefix 'delayq'"):
        archive(spark, "lettres", folder, url=redis_url)
    with DelayQueue("mails", url=redis_url) as mails:
        mails.send_delay_msg(1)
    with pytest.raises(ConfigurationError, match=r"queue 'mails' has no event log: .*events=True"):
        archive(spark, "mails", folder, url=redis_url)
    with pytest.raises(ConfigurationError, match="keep must be a whole number"):
        archive(spark, "letters", folder, url=redis_url, keep=-1)
    with pytest.raises(ConfigurationError, match="there is no archive at /nowhere"):
        read_archive(spark, "/nowhere")
    send(queue, 3)
    archive(spark, "letters", folder, url=redis_url)
    with pytest.raises(
        ConfigurationError, match=f"{folder} contains an archive, but there is no checkpoint at {tmp_path}"
    ):
        archive(spark, "letters", folder, url=redis_url, checkpoint=str(tmp_path / "other"))
    send(queue, 3)
    redis_client.xtrim(KEYS.events, minid="0-6", approximate=False)
    with pytest.raises(EventsLostError, match="queue 'letters' has lost 1 entry, offset 5: deleted"):
        archive(spark, "letters", folder, url=redis_url)
    result = archive(spark, "letters", folder, url=redis_url, fail_on_data_loss=False)
    assert (result.events, result.lost) == (2, ((5, 5),))
    assert result.told().endswith("; the log had lost 1 entry, offset 5")


def roll_back(redis_client, to):
    """Let the log end at an offset, as after a crash that has undone what followed."""
    entries = redis_client.xrange(KEYS.events, max=f"0-{to}")
    redis_client.delete(KEYS.events)
    for id, fields in entries:
        redis_client.xadd(KEYS.events, fields, id=id)


@pytest.mark.spark
@pytest.mark.timeout(400)
def test_archive_is_cut_back_with_a_log_that_was_rolled_back(spark, queue, redis_url, redis_client, folder):
    options = {"url": redis_url, "max_entries": 6}
    send(queue, 9, each=2)
    archive(spark, "letters", folder, **options)
    assert list(Path(folder).glob("day=*/*.parquet"))  # merged
    send(queue, 5, each=2)
    archive(spark, "letters", folder, **options)  # not merged
    undone = [(row.log_offset, row.id) for row in read_archive(spark, folder).where("log_offset > 8").collect()]

    roll_back(redis_client, 8)
    send(queue, 12)
    result = archive(spark, "letters", folder, **options, trim=True, keep=0)
    assert result.undone == ((9, 15, len(undone)),)
    assert f"{len(undone)} archived events, offsets 9 to 15, moved to _undone" in result.told()
    assert (result.first, result.last, result.trimmed) == (9, 20, 20)
    assert list(stored_positions(redis_client).values()) == [20]
    assert redis_client.hlen(KEYS.archives) == 1
    moved = ds.dataset(sorted(map(str, Path(folder, "_undone").rglob("*.parquet")))).to_table(["log_offset", "id"])
    assert sorted(zip(*moved.to_pydict().values(), strict=True)) == sorted(undone)
    places = [(1, 0), *((n, index) for n in range(2, 9) for index in range(2)), *((n, 0) for n in range(9, 21))]
    assert Counter((row.log_offset, row.entry_index) for row in read_archive(spark, folder).collect()) == Counter(
        places
    )

    # Once more, to a log that is shorter than the archive, and with a folder whose position is lost.
    send(queue, 3)
    archive(spark, "letters", folder, **options)
    assert [one.first for one in rollback.undone(spark, folder)] == [9]
    roll_back(redis_client, 22)
    result = archive(spark, "letters", folder, **options)
    assert (result.undone, result.batches) == (((23, 23, 1),), 0)
    send(queue, 2)
    assert archive(spark, "letters", folder, **options).last == 24
    assert read_archive(spark, folder).count() == len(places) + 4
    shutil.rmtree(f"{folder}/_checkpoint-2")
    with pytest.raises(ConfigurationError, match=r"there is no checkpoint at .*_checkpoint-2"):
        archive(spark, "letters", folder, **options)


@pytest.mark.spark
def test_log_that_was_deleted_needs_a_new_archive(spark, queue, redis_url, redis_client, folder):
    send(queue, 9)
    archive(spark, "letters", folder, url=redis_url)
    redis_client.delete(KEYS.events)
    for _ in range(2):
        for allowed in (False, True):
            with pytest.raises(EventsLostError, match=r"was deleted and begins anew: .* archive it in a new folder"):
                archive(spark, "letters", folder, url=redis_url, fail_on_data_loss=not allowed)
        send(queue, 15)
    assert read_archive(spark, folder).count() == 10


@pytest.mark.spark
def test_archive_over_spark_connect(queue, redis_url, folder, connect_url):
    import sys

    send(queue, 9, each=2)
    program = f"""
from delayq.spark import archive, create_views, read_archive, session

spark = session(master={connect_url!r})
result = archive(spark, "letters", {folder!r}, url={redis_url!r}, max_entries=4, trim=True, keep=1)
print(result.told())
print(archive(spark, "letters", {folder!r}, url={redis_url!r}).told())
print(read_archive(spark, {folder!r}).count())
create_views(spark, {folder!r})
print(*spark.sql("SELECT count(*), count(outcome) FROM lives").head())
"""
    done = processes.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines() == [
        f"archived 19 events in {folder}, offsets 1 to 10; trimmed 9 entries of the log",
        f"nothing new for {folder}",
        "19",
        "19 0",
    ]
    assert found(folder) == Counter({(1, 0): 1} | {(n, index): 1 for n in range(2, 11) for index in range(2)})
