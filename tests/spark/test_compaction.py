"""An archive's small files become a file a day; killed at any step, every reader finds each event once."""

import fcntl
import json
import os
import re
import shutil
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyarrow import fs, parquet

from delayq import ConfigurationError, DelayQueue
from delayq.archive import archive, archive_start, compact_archive, open_archive
from delayq.archive.archive_files import FORMER_NAMES, divide
from delayq.archive.archive_folder import SCHEMA, Folder
from delayq.archive.compaction import Compacted, _clean, _compact, _merge_days, compact_if_due
from delayq.bulk.files.schemas import EVENTS
from delayq.spark import read_archive
from tests.support.killed_file_system import KilledAt, KilledError

QUERY = "8c1f0c5e-0000-4000-8000-123456789012"
OTHER = "9d2f0c5e-0000-4000-8000-123456789012"
MIDNIGHT = datetime(2024, 5, 2, tzinfo=UTC)
HOUR = timedelta(hours=1)


# Which files count


def names(files):
    return [file.path for file in files]


def recent(batch, day="2024-05-02", query=QUERY):
    return f"/a/_recent/part={query}-{batch}/day={day}/part-0.parquet"


def merged(first, last, day="2024-05-02", query=QUERY):
    return f"/a/day={day}/{query}-{first}-{last}.parquet"


def old(batch):
    return f"/a/part={QUERY}-{batch}/part-0.parquet"


@pytest.mark.parametrize(
    ("counting", "replaced"),
    [
        ([], []),
        ([recent(0), recent(1), recent(10)], []),
        ([merged(0, 2), recent(3)], [recent(0), recent(1), recent(2)]),
        ([merged(0, 2), merged(3, 5)], [recent(2), recent(3), recent(5)]),
        ([merged(0, 9)], [merged(0, 5), merged(2, 3), recent(7)]),
        ([merged(0, 2), recent(2, "2024-05-03"), merged(3, 4, "2024-05-03")], [recent(2)]),
        ([merged(0, 2), recent(1, query=OTHER)], []),
        ([old(5), merged(6, 9)], [old(6)]),
        (["/a/other.parquet", old(5)], []),
    ],
    ids=lambda paths: f"{len(paths)}",
)
def test_merged_file_replaces_the_batches_in_its_name(counting, replaced):
    found, gone = divide([*reversed(counting), *replaced])
    assert names(found) == counting
    assert Counter(one.file.path for one in gone) == Counter(replaced)


def test_batches_of_an_older_delayq_count_until_the_facts_tell_that_they_are_merged():
    paths = [old(5), old(6), merged(0, 5, query=f"former-{QUERY}")]
    assert names(divide(paths)[0]) == paths[:2]
    assert names(divide(paths, {QUERY: 5})[0]) == paths[1:]
    again = merged(6, 6, query=f"former-{QUERY}")
    assert names(divide([*paths, again], {QUERY: 6})[0]) == [paths[2], again]


def test_file_of_an_unfinished_task_does_not_count():
    task = recent(4).replace("/day=", "/_temporary/0/_temporary/attempt_4_m_000000_4/day=")
    found, gone = divide([recent(3), task])
    assert (names(found), gone) == ([recent(3)], [])


# Compaction, on local files


def write_batch(folder, number, offsets, *, query=QUERY, hidden=True, former=False):
    """Write a batch as the archive does: a message every ten minutes, 75 of them before `MIDNIGHT`."""
    at = {offset: MIDNIGHT + (offset - 75) * HOUR / 6 for offset in offsets}
    for day in sorted({one.date() for one in at.values()}) if hidden else [None]:
        new = [n for n in offsets if day in (None, at[n].date())]
        rows = [{"log_offset": n, "entry_index": 0, "event_at": at[n], "kind": "sent"} for n in new]
        batch = folder / ("_recent" * hidden) / f"part={query}-{number}"
        place = batch / f"day={day}" if hidden else batch
        place.mkdir(parents=True, exist_ok=True)
        table = pa.Table.from_pylist(rows, SCHEMA)
        if former:
            table = table.rename_columns([FORMER_NAMES.get(name, name) for name in table.column_names])
        parquet.write_table(table, place / "part-00000.parquet")


def write_facts(folder, **facts):
    """Write the description of an archive as Spark does, with Hadoop's checksum; returns the file."""
    file = folder / "_delayq" / "part-00000.txt"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(facts) + "\n")
    (file.parent / f".{file.name}.crc").write_bytes(b"crc")
    return file


def write_batches(folder, count, *, first=0, each=8):
    for number in range(first, first + count):
        write_batch(folder, number, range(number * each, (number + 1) * each))


def counted(paths):
    return Counter(
        ds.dataset(paths, schema=SCHEMA, format="parquet").to_table(["log_offset"])["log_offset"].to_pylist()
    )


def read(folder):
    """Count each offset in the files that count."""
    tables = [parquet.ParquetFile(path).read() for path in counting(folder)]
    columns = [table["log_offset" if "log_offset" in table.column_names else "offset"] for table in tables]
    return Counter(offset for column in columns for offset in column.to_pylist())


def counting(folder):
    return names(Folder.open(str(folder)).divided()[0])


def read_plainly(folder):
    """Count each offset as any program does that reads the whole folder."""
    return counted(str(folder))


def once(count):
    return Counter(range(count))


def age(folder, by=2 * HOUR):
    """Make everything in a folder look as if it was written before."""
    before = (datetime.now(UTC) - by).timestamp()
    for path in [*folder.rglob("*"), folder]:
        os.utime(path, (before, before))


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*.parquet"))


def days(folder):
    return sorted(path.name for path in folder.glob("day=*"))


@pytest.fixture
def folder(tmp_path):
    """An archive of twelve batches, 96 events on two days; one batch has events of both."""
    folder = tmp_path / "an archive"
    write_batches(folder, 12, each=8)
    return folder


def test_small_files_are_merged_into_one_a_day(folder):
    assert compact_archive(str(folder)) == Compacted(merged=13, files=2, events=96)
    assert [name for name in files(folder) if name.startswith("day=")] == [
        f"day=2024-05-01/{QUERY}-0-9.parquet",
        f"day=2024-05-02/{QUERY}-9-11.parquet",
    ]
    assert read(folder) == read_plainly(folder) == once(96)
    offsets = parquet.read_table(folder / f"day=2024-05-01/{QUERY}-0-9.parquet")["log_offset"].to_pylist()
    assert offsets == sorted(offsets)
    assert compact_archive(str(folder)).told() == "nothing to merge"


def test_what_a_killed_task_leaves_is_not_merged(folder):
    task = folder / "_recent" / f"part={QUERY}-12" / "_temporary" / "0" / "_temporary" / "attempt" / "day=2024-05-02"
    task.mkdir(parents=True)
    (task / "part-00000.parquet").touch()
    assert read(folder) == once(96)
    assert compact_archive(str(folder)) == Compacted(merged=13, files=2, events=96)
    assert read(folder) == read_plainly(folder) == once(96)


def test_archive_grows_between_two_compactions(folder):
    compact_archive(str(folder))
    write_batches(folder, 5, first=12)
    assert read(folder) == once(136)
    assert read_plainly(folder) == once(96)
    assert compact_archive(str(folder)).told() == "merged 5 files into 1, 40 events"
    assert read(folder) == read_plainly(folder) == once(136)


def test_small_files_stay_for_an_hour_after_they_were_merged(folder):
    age(folder)
    compact_archive(str(folder))
    assert len(files(folder)) == 13 + 2
    write_batches(folder, 2, first=12)
    age(folder)
    compact_archive(str(folder))  # merges two, and deletes those it merged before
    assert len(files(folder)) == 2 + 2 + 1
    assert read(folder) == once(112)
    age(folder)
    compact_archive(str(folder))
    assert not list((folder / "_recent").glob("part=*"))
    assert read(folder) == read_plainly(folder) == once(112)


def test_batch_written_again_after_a_kill_counts_once(folder):
    compact_archive(str(folder))
    write_batch(folder, 11, range(88, 96))
    assert read(folder) == once(96)
    assert compact_archive(str(folder)).merged == 0


def test_compaction_of_two_processes_at_a_time_counts_once(folder, monkeypatch):
    """As in an object store, where no lock keeps them apart."""
    merge, begun = Folder.merge, []

    def slow(self, group, to):
        if not begun:
            begun.append(to)
            write_batches(folder, 3, first=12)
            _compact(self, None)
        return merge(self, group, to)

    monkeypatch.setattr(Folder, "merge", slow)
    _compact(Folder.open(str(folder)), None)
    assert read(folder) == once(120)
    compact_archive(str(folder))
    assert read(folder) == read_plainly(folder) == once(120)


def killed_at(folder, step, *, retain=None):
    """Compact until a step; returns whether there is such a step."""
    try:
        _compact(Folder(fs.PyFileSystem(KilledAt(step)), str(folder)), retain)
    except KilledError:
        return True
    return False


@pytest.mark.long
def test_killed_at_any_step_each_event_counts_once(folder, tmp_path):
    compact_archive(str(folder))
    write_batches(folder, 24, first=12)
    (folder / "day=2024-05-01" / ".left.parquet").touch()
    age(folder)
    step, plain = 0, 0
    while True:
        copy = tmp_path / "copy"
        shutil.copytree(folder, copy)  # keeps the times
        is_killed = killed_at(copy, step)
        assert read(copy) == once(288), step
        seen = read_plainly(copy)
        assert max(seen.values()) == 1, step
        assert len(seen) >= plain  # nothing disappears for other programs
        plain = len(seen)
        compact_archive(str(copy))
        assert read(copy) == read_plainly(copy) == once(288), step
        shutil.rmtree(copy)
        if not is_killed:
            break
        step += 1
    assert step == 12 + 1 + 2 * 3  # what is deleted, and two days merged


@pytest.fixture
def hourly(folder):
    """An archive with 30 files on three days, which was compacted after each batch."""
    write_facts(folder, schema=3, oldest=3, queue="letters")
    compact_archive(str(folder))
    for number in range(12, 36):
        write_batch(folder, number, range(number * 8, number * 8 + 8))
        compact_archive(str(folder))
    assert read(folder) == read_plainly(folder) == once(288)
    for _ in range(2):  # all small files are gone
        age(folder)
        _clean(Folder.open(str(folder)), datetime.now(UTC) - HOUR)
    assert len(files(folder)) == 27
    return folder


def test_files_of_a_day_that_is_over_become_one(hourly):
    for done, count in [("merged 26 files into 2, 213 events", 29), ("nothing to merge", 5), ("nothing to merge", 3)]:
        begun = counting(hourly)
        age(hourly)
        assert compact_archive(str(hourly)).told() == done
        assert all(map(os.path.exists, begun))  # those that read them now are not disturbed
        assert len(files(hourly)) == count
        assert read(hourly) == read_plainly(hourly) == once(288)
    age(hourly)
    compact_archive(str(hourly))
    assert [path.name for path in (hourly / "_recent").iterdir()] == [".lock"]

    write_batch(hourly, 36, range(288, 296))  # a batch that came late
    for count in (5, 5, 4, 3):
        age(hourly)
        compact_archive(str(hourly))
        assert len(files(hourly)) == count
        assert read(hourly) == once(296)


def test_day_that_goes_on_and_large_files_are_not_merged_again(hourly, monkeypatch):
    age(hourly)
    folder = Folder.open(str(hourly))
    assert list(_merge_days(folder, date(2024, 5, 1), datetime.now(UTC))) == []
    assert list(_merge_days(folder, date(2026, 5, 1), datetime.now(UTC) - 3 * HOUR)) == []
    monkeypatch.setattr("delayq.archive.compaction.SMALL", 1)
    assert list(_merge_days(folder, date(2026, 5, 1), datetime.now(UTC))) == []


@pytest.mark.long
def test_day_that_is_over_is_merged_by_steps_that_may_be_killed(hourly, tmp_path):
    steps = []
    for _ in range(3):
        age(hourly)
        step, is_killed = 0, True
        while is_killed:
            copy = tmp_path / "copy"
            shutil.copytree(hourly, copy)
            begun = counting(copy)
            is_killed = killed_at(copy, step)
            assert all(map(os.path.exists, begun)), step
            assert read(copy) == once(288), step
            assert read_plainly(copy).keys() == set(range(288))  # nothing disappears for other programs
            compact_archive(str(copy))
            assert read(copy) == read_plainly(copy) == once(288), step
            shutil.rmtree(copy)
            step += 1
        steps.append(step - 1)
        compact_archive(str(hourly))
    assert steps == [
        2 * 3,
        2 * 3 + 26,
        2,
    ]  # two days written; published, and their files deleted; the hidden ones deleted


@pytest.fixture
def former(tmp_path):
    """An archive of an older delayq, of which the last batch was begun again by this one: 96 events on two days."""
    folder = tmp_path / "former"
    for number in range(12):
        write_batch(folder, number, range(number * 8, number * 8 + 8), hidden=False, former=True)
    write_batch(folder, 11, range(88, 96))
    return folder


def test_archive_of_an_older_delayq_is_merged(former):
    assert read(former) == once(96)
    age(former)
    assert compact_archive(str(former)) == Compacted(merged=12, files=3, events=96)
    assert read(former) == once(96)
    assert json.loads((former / "_delayq" / "part-00000.txt").read_text()) == {
        "schema": 3, "oldest": 1, "former": {QUERY: 10},
    }  # fmt: skip
    assert len(list(former.glob("part=*/*.parquet"))) == 12  # for an hour
    write_batch(former, 12, range(96, 104), hidden=False, former=True)  # the older delayq was started once more
    assert read(former) == once(104)
    age(former)
    compact_archive(str(former))
    for _ in range(5):
        age(former)
        compact_archive(str(former))
    assert read(former) == read_plainly(former) == once(104)
    assert not list(former.glob("part=*/*.parquet"))


@pytest.mark.long
def test_archive_of_an_older_delayq_is_merged_by_steps_that_may_be_killed(former, tmp_path):
    age(former)
    for _ in range(3):
        step, is_killed = 0, True
        while is_killed:
            copy = tmp_path / "copy"
            shutil.copytree(former, copy)
            begun = counting(copy)
            is_killed = killed_at(copy, step)
            assert all(map(os.path.exists, begun)), step
            assert read(copy) == once(96), step
            compact_archive(str(copy))
            assert read(copy) == once(96), step
            shutil.rmtree(copy)
            step += 1
        compact_archive(str(former))
        age(former)
    assert read_plainly(former) == once(96)


@pytest.mark.parametrize("suffix", ["", ".new"])
def test_killed_while_it_writes_leaves_nothing_that_counts(folder, suffix):
    compact_archive(str(folder))
    write_batches(folder, 2, first=12)
    part = folder / "day=2024-05-02" / f".{QUERY}-12-13.parquet{suffix}"
    part.write_bytes(b"PAR1 and then killed")
    assert read(folder) == once(112)
    age(folder)
    compact_archive(str(folder))
    assert read(folder) == read_plainly(folder) == once(112)
    assert not part.exists()


def test_unfinished_files_are_not_read_by_programs_that_read_hidden_ones(folder, monkeypatch):
    """DuckDB's patterns match hidden files."""
    compact_archive(str(folder))
    write_batches(folder, 2, first=12)
    seen = list[int]()
    whole = Folder.tables

    def watched(self, files):
        yield from whole(self, files)
        seen.append(in_duckdb(folder))

    monkeypatch.setattr(Folder, "tables", watched)
    compact_archive(str(folder))
    assert seen == [96]
    assert in_duckdb(folder) == 112


def in_duckdb(folder):
    ((count,),) = duckdb.sql(f"SELECT count(*) FROM '{folder}/day=*/*.parquet'").fetchall()
    return count


def test_retain_deletes_whole_days(folder):
    write_batches(folder, 24, first=12)
    retain = datetime.now(UTC) - MIDNIGHT - 12 * HOUR
    done = compact_archive(str(folder), retain=retain)
    assert (done.days, days(folder)) == (1, ["day=2024-05-02", "day=2024-05-03"])
    assert min(read(folder)) == 75
    assert compact_archive(str(folder), retain=retain).days == 0
    for wrong in ("1h", -1):
        with pytest.raises(ConfigurationError, match="retain must"):
            compact_archive(str(folder), retain=wrong)


def test_archive_knows_what_retain_has_deleted(folder):
    write_facts(folder, schema=2, queue="q")
    assert archive_start(str(folder)) is None
    compact_archive(str(folder), retain=datetime.now(UTC) - MIDNIGHT + 12 * HOUR)
    assert archive_start(str(folder)) is None
    for _ in range(2):
        compact_archive(str(folder), retain=datetime.now(UTC) - MIDNIGHT - 12 * HOUR)
        assert archive_start(str(folder)) == MIDNIGHT
    assert open_archive(str(folder)).facts == {"schema": 3, "oldest": 2, "queue": "q", "start": "2024-05-02"}


def test_retain_killed_at_any_step_brings_no_day_back_in_part(folder, tmp_path):
    compact_archive(str(folder))
    retain = datetime.now(UTC) - MIDNIGHT - 12 * HOUR
    step, is_killed = 0, True
    while is_killed:
        copy = tmp_path / "copy"
        shutil.copytree(folder, copy)
        is_killed = killed_at(copy, step, retain=retain)
        gone = set(range(96)) - set(read(copy))
        assert gone in (set(), set(range(75))), step
        compact_archive(str(copy), retain=retain)
        assert set(read(copy)) == set(range(75, 96)), step
        shutil.rmtree(copy)
        step += 1


def test_archive_compacts_itself_once_an_hour(folder):
    path = str(folder)
    assert compact_if_due(path, None).files == 2
    write_batches(folder, 1, first=12)
    assert compact_if_due(path, None) == Compacted()
    age(folder)
    with (folder / "_recent" / ".lock").open("w") as lock:  # another process does it
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert compact_if_due(path, None) == Compacted()
    assert compact_if_due(path, None).merged == 1
    assert compact_if_due(str(folder / "missing"), None) is None
    with pytest.raises(ConfigurationError, match=r"there is no archive at .*missing"):
        compact_archive(str(folder / "missing"))
    with pytest.raises(ConfigurationError, match="there is no archive at nowhere://a"):
        compact_archive("nowhere://a")


def test_files_with_the_former_names_of_columns_are_merged_with_new_ones(tmp_path):
    for number in range(4):
        write_batch(tmp_path, number, range(number * 8, number * 8 + 8), former=number < 2)
    facts = write_facts(tmp_path, schema=2, queue="letters")
    compact_archive(str(tmp_path))
    assert read_plainly(tmp_path) == once(32)
    (merged,) = tmp_path.glob("day=*/*.parquet")
    assert parquet.read_schema(merged).names == SCHEMA.names
    # An older delayq would not find the columns, so it must refuse the archive.
    assert json.loads(facts.read_text()) == {"schema": 3, "oldest": 2, "queue": "letters"}
    assert [file.name for file in facts.parent.iterdir()] == [facts.name]


# In Spark


def offsets(frame):
    return Counter(row.log_offset for row in frame.select("log_offset").collect())


@pytest.mark.spark
def test_archive_is_read_by_day_whatever_wrote_its_files(spark, folder):
    compact_archive(str(folder))
    write_batch(folder, 500, range(1000, 1010), query=OTHER, hidden=False, former=True)  # by an older delayq
    write_batches(folder, 12, first=12)
    events = read_archive(spark, str(folder))
    assert offsets(events) == once(192) + Counter(range(1000, 1010))

    noon = MIDNIGHT + 12 * HOUR
    of_a_day = read_archive(spark, str(folder), start=MIDNIGHT, until=noon)
    opened = {re.search("part=[^/]+|day=[^/]+", path)[0] for path in of_a_day.inputFiles()}
    new = {f"part={QUERY}-{number}" for number in range(12, 24)}
    assert opened == {"day=2024-05-02", f"part={OTHER}-500"} | new
    assert offsets(of_a_day) == Counter(range(75, 147))
    assert offsets(read_archive(spark, str(folder), start=noon + 1000 * HOUR)) == Counter()
    compact_archive(str(folder))
    assert offsets(read_archive(spark, str(folder))) == once(192) + Counter(range(1000, 1010))
    assert offsets(read_archive(spark, str(folder), start=MIDNIGHT, until=noon)) == Counter(range(75, 147))
    with pytest.raises(ConfigurationError, match="start must carry a time zone"):
        read_archive(spark, str(folder), start=datetime(2026, 1, 1))  # noqa: DTZ001


@pytest.mark.spark
def test_reader_that_has_begun_is_not_disturbed_by_a_compaction(spark, folder):
    age(folder)
    events = read_archive(spark, str(folder))
    compact_archive(str(folder))
    compact_archive(str(folder))
    assert offsets(events) == once(96)
    write_batches(folder, 2, first=12)
    compact_archive(str(folder))
    for _ in range(3):  # the days become one file each
        age(folder)
        events = read_archive(spark, str(folder))
        compact_archive(str(folder))
        assert offsets(events) == offsets(read_archive(spark, str(folder))) == once(112)


@pytest.mark.spark
@pytest.mark.torture
def test_archive_with_the_former_names_of_columns_is_read_and_continued(spark, redis_url, tmp_path):
    path = str(tmp_path / "events")
    with DelayQueue("letters", url=redis_url, events=True) as queue:
        queue.send_delay_msg(1, "1h")
        archive("letters", path, url=redis_url)
        (merged,) = Path(path).glob("day=*/*.parquet")
        table = parquet.read_table(merged, partitioning=None)
        parquet.write_table(table.rename_columns([FORMER_NAMES.get(name, name) for name in table.column_names]), merged)
        (facts,) = Path(path, "_delayq").glob("part-*")
        (facts.parent / f".{facts.name}.crc").unlink()
        facts.write_text('{"schema": 2, "queue": "letters"}')
        (event,) = queue.events()
        (row,) = read_archive(spark, path).collect()
        assert (row.log_offset, row.entry_index, row.event_at.astimezone(UTC)) == (1, 0, event.at)

        age(Path(path))
        queue.send_delay_msg(2, "1h")
        archive("letters", path, url=redis_url)
    (facts,) = Path(path, "_delayq").glob("part-*")
    assert json.loads(facts.read_text()) == {"schema": 4, "oldest": 2, "queue": "letters"}
    assert offsets(read_archive(spark, path)) == Counter([1, 2])
    assert offsets(read_archive(spark, path, until=event.at)) == Counter()
    assert read_archive(spark, path).dtypes == spark.createDataFrame([], EVENTS).dtypes


@pytest.mark.spark
def test_archive_of_a_later_schema_is_refused(spark, folder):
    write_facts(folder, schema=5)
    with pytest.raises(ConfigurationError, match=r"a later delayq wrote the archive at .*: its schema is 5"):
        read_archive(spark, str(folder))
