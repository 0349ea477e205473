"""`delayq outbox`: relays, and looks after rows that Redis refuses."""

import signal

import pytest
from sqlalchemy import create_engine, update

from delayq import DelayQueue, outbox
from delayq.outbox.tables import outbox as table


@pytest.fixture
def database(tmp_path):
    url = f"sqlite:///{tmp_path}/app.db"
    engine = create_engine(url)
    outbox.create(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def send(database, queue):
    def send(**options):
        with database.begin() as connection:
            return outbox.send(connection, queue, 1, **options)

    return send


@pytest.fixture
def refused(database, send):
    """A refused row, and one that follows it."""
    send(id="bad")
    send(id="bad", replace=True)
    with database.begin() as connection:
        connection.execute(update(table).values(refused="ServerError: no"))
    return str(database.url)


def test_burst_relays_what_is_committed(cli, queue, send, database):
    send(id="one")
    done = cli("outbox", "relay", str(database.url), "reminders", "--burst")
    assert (done.code, done.out) == (0, "relayed 1 row\n")
    assert queue.get("one") is not None


def test_queue_over_partitions_is_relayed(cli, redis_url, database):
    with DelayQueue("split", url=redis_url, partitions=4) as split:
        split.open()
        with database.begin() as connection:
            ids = [outbox.send(connection, split, n) for n in range(20)]
        done = cli("outbox", "relay", str(database.url), "split", "--burst")
        assert (done.code, done.out) == (0, "relayed 20 rows\n")
        assert all(split.get(id) for id in ids)


def test_refused_rows_are_listed_and_tried_again(cli, refused, queue):
    listed = cli("outbox", "list", refused, "--json").json
    assert listed["queues"] == {"reminders": {"waiting": 0, "oldest": 0.0, "refused": 2}}
    assert [(row["id"], row["operation"], row["reason"]) for row in listed["rows"]] == [
        ("bad", "send", "ServerError: no"),
        ("bad", "replace", "ServerError: no"),
    ]
    assert "0 rows waiting, 2 refused" in cli("outbox", "list", refused).out
    assert cli("outbox", "retry", refused).out == "2 rows will be tried again\n"
    assert cli("outbox", "relay", refused, "reminders", "--burst").out == "relayed 2 rows\n"


def test_refused_row_is_dropped(cli, refused):
    first, second = (str(row["seq"]) for row in cli("outbox", "list", refused, "--json").json["rows"])
    assert cli("outbox", "drop", refused, first).code == 2, "it asks"
    assert cli("outbox", "drop", refused, first, "--yes").out == "dropped 1 row\n"
    assert [str(row["seq"]) for row in cli("outbox", "list", refused, "--json").json["rows"]] == [second]
    assert cli("outbox", "retry", refused, second, "--json").json == {"retried": 1}


def test_doctor_finds_a_relay_that_is_behind(cli, queue, send, database):
    send()
    queue.open()
    assert "outbox" not in cli("doctor", "--outbox", str(database.url)).out
    with database.begin() as connection:
        connection.execute(update(table).values(inserted=table.c.inserted - 60_000))
    done = cli("doctor", "--outbox", str(database.url))
    assert done.code == 4
    assert "reminders  outbox behind: 1 row waiting for up to 1m" in done.out
    found = cli("doctor", "reminders", "--outbox", str(database.url), "--json").json["findings"]
    assert [one["count"] for one in found if one["kind"] == "outbox behind"] == [1]


def test_metrics_tell_what_waits(send, database):
    from delayq.metrics.families import choose_encoder
    from delayq.outbox.outbox_collector import OutboxCollector

    send()
    encode, _ = choose_encoder("")
    text = encode(OutboxCollector(database)).decode()
    assert 'delayq_outbox_rows{queue="reminders"} 1.0' in text
    assert 'delayq_outbox_refused_rows{queue="reminders"} 0.0' in text
    assert 'delayq_outbox_oldest_seconds{queue="reminders"} ' in text


@pytest.mark.parametrize(
    ("url", "code", "words"),
    [
        ("nope://x", 2, "DATABASE_URL: Can't load plugin"),
        ("nothing", 2, "DATABASE_URL: "),
        ("sqlite+aiosqlite:///x.db", 2, "a driver for asyncio"),
        ("postgresql+psycopg://user:hidden@127.0.0.1:1/x", 69, "the database does not answer"),
        ("sqlite:///empty.db", 1, "call outbox.create(engine)"),
    ],
)
def test_wrong_database_prints_one_line(cli, url, code, words):
    for command in (["list", url], ["relay", url, "reminders"], ["retry", url], ["drop", url, "1", "--yes"]):
        done = cli("outbox", *command)
        assert done.code == code
        assert words in done.line
        assert "hidden" not in done.err


def test_unreachable_redis_prints_one_line(cli, database):
    url = "redis://127.0.0.1:1"
    done = cli("--url", url, "--timeout", "200ms", "outbox", "relay", str(database.url), "reminders")
    assert done.code == 69
    assert "cannot be reached" in done.line


@pytest.mark.long
def test_relay_runs_until_a_signal(start, redis_url, database):
    program = start("outbox", "relay", str(database.url), "reminders")
    program.says("relaying to reminders")
    with DelayQueue("reminders", url=redis_url) as queue, database.begin() as connection:
        id = outbox.send(connection, queue, 1)
        connection.commit()
        program.until(lambda: queue.get(id), "a message in the queue")
    program.signal(signal.SIGTERM)
    ended = program.ended()
    assert (ended.code, ended.out) == (0, "relayed 1 row\n")
    assert "Traceback" not in ended.err
