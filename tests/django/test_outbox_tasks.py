"""Tasks with `enqueue="outbox"`: the transaction writes a row, and `manage.py delayq_outbox` sends it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from delayq.errors import OutboxError, PayloadError, ServerError
from tests.support.processes import Process
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def postgres(project):
    from django.db import connections

    from tests.support.postgres import Postgres, find_program

    if find_program("initdb") is None:
        pytest.skip("no PostgreSQL: scripts/ensure-postgres")
    pytest.importorskip("psycopg")
    server = Postgres()
    _add_database("postgresql", server)
    yield server
    connections["postgresql"].close()
    server.stop()


def _add_database(alias, server, **options):
    from django.core.management import call_command
    from django.db import connections

    place = {"ENGINE": "django.db.backends.postgresql", "HOST": str(server.folder), "USER": "tester"}
    known = {"default": connections.settings["default"], alias: {**place, "NAME": "postgres", "OPTIONS": options}}
    connections.settings[alias] = connections.configure_settings(known)[alias]
    call_command("migrate", "delayq", database=alias, verbosity=0)


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request, project):
    """The alias of a database with an empty outbox."""
    if request.param == "postgresql":
        request.getfixturevalue("postgres")
    alias = {"sqlite": "default"}.get(request.param, request.param)
    rows(alias).delete()
    yield alias
    rows(alias).delete()


@pytest.fixture
def outbox(tasks, configure, database):
    """The tasks of the app, with a backend that has an outbox."""
    configure(enqueue="outbox", database=database)
    return tasks


@pytest.fixture
def relay(project):
    """`relay()` runs `manage.py delayq_outbox --burst`, and returns what it prints."""
    from io import StringIO

    from django.core.management import call_command

    def relay(**options):
        said = StringIO()
        call_command("delayq_outbox", burst=True, stdout=said, **options)
        return said.getvalue().splitlines()[-1]

    return relay


def rows(alias):
    from delayq.django.models import OutboxMessage

    return OutboxMessage.objects.using(alias)


def atomic(alias):
    from django.db import transaction

    return transaction.atomic(using=alias)


def living(tasks):
    return tasks.add.get_backend().queue("default").counts().living


def api():
    from delayq.django import tasks_api

    return tasks_api


# What a transaction does


def test_committed_task_is_sent_once_by_the_relay(outbox, relay, work, database, signals):
    with atomic(database):
        result = outbox.add.enqueue(1, two=2)
        assert signals == []
        result.refresh()
        assert str(result.status) == "READY"
    assert [(name, status) for name, status, _ in signals] == [("task_enqueued", "READY")]
    work()
    assert (outbox.seen, living(outbox)) == ([], 0)
    result.refresh()
    assert (str(result.status), result.args, result.kwargs) == ("READY", [1], {"two": 2})
    assert result.enqueued_at is not None
    assert relay() == "relayed 1 row"
    assert relay() == "relayed 0 rows"
    result.refresh()
    assert str(result.status) == "READY"
    work()
    result.refresh()
    assert (str(result.status), result.return_value) == ("SUCCESSFUL", 3)
    assert not rows(database).exists()


def test_rolled_back_task_is_never_sent(outbox, relay, database, signals):
    def place():
        with atomic(database):
            result.append(outbox.add.enqueue(1))
            raise LookupError

    result = []
    with pytest.raises(LookupError):
        place()
    assert relay() == "relayed 0 rows"
    assert (signals, living(outbox)) == ([], 0)
    with pytest.raises(api().TaskResultDoesNotExist):
        result[0].refresh()


def test_savepoint_that_is_rolled_back_takes_its_tasks_along(outbox, relay, work, database, signals):
    from django.db import transaction

    with atomic(database):
        outbox.add.enqueue(1)
        with atomic(database):
            outbox.add.enqueue(2)
            transaction.set_rollback(True, using=database)
        with atomic(database), atomic(database):
            outbox.add.enqueue(3)
    assert relay() == "relayed 2 rows"
    work(concurrency=1)
    assert sorted(outbox.seen) == [(1, 0), (3, 0)]
    assert len([name for name, _, _ in signals if name == "task_enqueued"]) == 2


def test_task_in_autocommit_is_committed_at_once(outbox, relay, database, signals):
    outbox.add.enqueue(1)
    assert [name for name, _, _ in signals] == ["task_enqueued"]
    assert relay() == "relayed 1 row"


def test_transaction_without_atomic_counts(outbox, relay, database, signals):
    from django.db import transaction

    transaction.set_autocommit(False, using=database)
    try:
        outbox.add.enqueue(1)
        transaction.rollback(using=database)
        outbox.add.enqueue(2)
        transaction.commit(using=database)
    finally:
        transaction.set_autocommit(True, using=database)
    assert relay() == "relayed 1 row"


def test_async_view_sends_what_its_transaction_commits(outbox, relay, work, database):
    from asgiref.sync import sync_to_async
    from django.db import transaction

    def place(number):
        with atomic(database):
            outbox.add.enqueue(number)
            transaction.set_rollback(number == 2, using=database)

    async def view():
        await sync_to_async(place)(1)
        await sync_to_async(place)(2)
        result = await outbox.add.aenqueue(3)
        await result.arefresh()
        found = await outbox.add.aget_result(result.id)
        return str(result.status), str(found.status)

    assert asyncio.run(view()) == ("READY", "READY")
    assert relay() == "relayed 2 rows"
    work()
    assert sorted(outbox.seen) == [(1, 0), (3, 0)]


@pytest.mark.parametrize("options", [{"url": "memory://"}, {"partitions": 4}], ids=str)
def test_embedded_and_partitioned_queues_have_an_outbox(outbox, configure, relay, database, options):
    configure(enqueue="outbox", database=database, **options)
    queue = outbox.add.get_backend().queue("default")
    queue.purge()  # all of a process share the embedded server
    with atomic(database):
        results = [outbox.add.enqueue(number) for number in range(20)]
    assert relay() == "relayed 20 rows"
    for result in results:
        result.refresh()
    assert {str(result.status) for result in results} == {"READY"}
    assert queue.counts().living == 20


def test_time_queue_and_priority_of_a_waiting_task_are_kept(outbox, relay, database):
    at = datetime.now().astimezone() + timedelta(hours=1)
    result = outbox.send_email.using(run_after=at).enqueue("ada@example.org")
    for _ in range(2):  # as a row, and as a message
        found = outbox.send_email.get_result(result.id)
        assert (str(found.status), found.task.queue_name, found.task.priority) == ("READY", "emails", 5)
        assert abs(found.task.run_after - at) < timedelta(milliseconds=2)
        relay()
    stored = outbox.add.get_backend().queue("emails").get(result.id.partition("@")[2])
    assert abs(stored.due - at) < timedelta(milliseconds=2)


def test_result_is_found_while_a_relay_sends_it(outbox, relay, database, monkeypatch):
    from delayq.django import outbox_rows

    def find(*_):
        relay()

    monkeypatch.setattr(outbox_rows, "find", find)
    result = outbox.add.enqueue(1)
    result.refresh()
    assert str(result.status) == "READY"
    assert living(outbox) == 1


def test_row_that_was_sent_and_not_deleted_is_sent_once(outbox, relay, work, database):
    outbox.add.enqueue(1)
    kept = rows(database).get()
    relay()
    work()
    kept.save(force_insert=True)
    assert relay() == "relayed 1 row"
    work()
    assert outbox.seen == [(1, 0)]


def test_delay_of_another_program_counts_from_its_insert(outbox, relay, database):
    """What SQLAlchemy writes into the same table, Django's relay sends: order, own ids and delays."""
    import delayq.outbox as sql

    engine, queue = engine_of(database), outbox.add.get_backend().queue("default")
    with engine.begin() as connection:
        for id in ("cancelled", "moved", "sent"):
            sql.send(connection, queue, {"args": [id]}, delay=3600, id=id)
        sql.cancel(connection, queue, "cancelled")
        sql.reschedule(connection, queue, "moved", delay=7200)
    engine.dispose()
    rows(database).filter(message="sent").update(inserted=int(time.time() * 1000) - 600_000)
    assert relay() == "relayed 5 rows"
    now = datetime.now().astimezone()
    assert queue.get("cancelled") is None
    assert timedelta(minutes=119) < queue.get("moved").due - now < timedelta(minutes=121)
    assert timedelta(minutes=49) < queue.get("sent").due - now < timedelta(minutes=51)


def test_relay_of_sqlalchemy_sends_the_rows_of_django(outbox, work, database):
    import delayq.outbox as sql

    engine = engine_of(database)
    outbox.add.enqueue(4)
    assert sql.relay(engine, outbox.add.get_backend().queue("default")).run(burst=True) == 1
    engine.dispose()
    work()
    assert outbox.seen == [(4, 0)]


def engine_of(alias):
    from django.db import connections
    from sqlalchemy import URL, create_engine

    place = connections[alias].settings_dict
    if alias == "default":
        return create_engine(f"sqlite:///{place['NAME']}")
    return create_engine(URL.create("postgresql+psycopg", "tester", database="postgres", query={"host": place["HOST"]}))


def test_migrations_make_the_tables_of_sqlalchemy(outbox, database, tmp_path, request):
    from sqlalchemy import create_engine, inspect, text

    import delayq.outbox as sql

    migrated = engine_of(database)
    if database == "default":
        created = create_engine(f"sqlite:///{tmp_path}/created.db")
    else:
        with migrated.begin() as connection:
            connection.execute(text("CREATE SCHEMA IF NOT EXISTS created"))
        created = create_engine(migrated.url, connect_args={"options": "-c search_path=created"})
    sql.create(created)

    def shape(engine, table):
        looking = inspect(engine)
        columns = {one["name"]: (str(one["type"]).upper(), one["nullable"]) for one in looking.get_columns(table)}
        found = [one for one in looking.get_indexes(table) if not one["name"].endswith("_like")]  # Django's, for LIKE
        indexes = {one["name"]: (one["column_names"], bool(one.get("dialect_options"))) for one in found}
        return columns, indexes, looking.get_pk_constraint(table)["constrained_columns"]

    for table in ("delayq_outbox", "delayq_outbox_relay"):
        assert shape(migrated, table) == shape(created, table), table
    for one in (migrated, created):
        one.dispose()


def test_migrations_are_complete(project):
    from django.core.management import call_command

    call_command("makemigrations", "delayq", check=True, dry_run=True, verbosity=0)


# The relay


def relay_of(outbox, alias):
    from delayq.django.outbox_relay import DjangoRelay

    backend = outbox.add.get_backend()
    return DjangoRelay(alias, backend.queue("default"), backend.queue("emails"))


def test_running_relay_sends_what_is_committed(outbox, database):
    from delayq.outbox.relaying.relay_steps import HEARTBEAT

    with relay_of(outbox, database):
        for count in range(1, 4):
            with atomic(database):
                outbox.add.enqueue(count)
            wait_until(lambda count=count: living(outbox) == count, timeout=HEARTBEAT / 2)
    assert not rows(database).exists()


def test_of_two_relays_one_works_and_the_other_takes_over(outbox, database):
    first, second = relay_of(outbox, database), relay_of(outbox, database)
    with second, first:
        for number in range(30):
            outbox.add.enqueue(number)
            if number == 15:
                first.stop()
        wait_until(lambda: not rows(database).exists())
    assert first._steps.moved + second._steps.moved == 30
    assert living(outbox) == 30


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_relay_has_an_isolation_that_sees_later_commits(tasks, configure, postgres, level):
    """Whatever the settings of the database say."""
    alias = level.lower().replace(" ", "_")
    _add_database(alias, postgres, isolation_level={"REPEATABLE READ": 3, "SERIALIZABLE": 4}[level])
    from django.db import connections

    configure(enqueue="outbox", database=alias)
    with closing(connections[alias]):
        with atomic(alias), connections[alias].cursor() as cursor:
            cursor.execute("SHOW transaction_isolation")
            assert cursor.fetchone() == (level.lower(),)
        with relay_of(tasks, alias), relay_of(tasks, alias):
            for number in range(20):
                with atomic(alias):
                    tasks.add.enqueue(number)
            wait_until(lambda: living(tasks) == 20)
            wait_until(lambda: not rows(alias).exists())


def test_relay_connects_again_to_a_database_that_was_killed(tasks, configure, project):
    from django.db import connections

    from tests.support.postgres import Postgres, find_program

    if find_program("initdb") is None:
        pytest.skip("no PostgreSQL: scripts/ensure-postgres")
    server = Postgres()
    _add_database("killed", server)
    configure(enqueue="outbox", database="killed")
    with closing(connections["killed"]) as connection, relay_of(tasks, "killed") as relay:
        tasks.add.enqueue(1)
        wait_until(lambda: relay._steps.moved == 1)
        server.kill()
        connection.close()
        server.start()
        tasks.add.enqueue(2)
        wait_until(lambda: relay._steps.moved == 2)
    server.stop()


def test_refused_row_is_ready_and_tried_again(outbox, relay, work, database, monkeypatch):
    def refuse(*_, **__):
        raise ServerError("WRONGTYPE of this id")

    from delayq.outbox.relaying import relay_steps

    result = outbox.add.enqueue(1)
    with monkeypatch.context() as patched:
        patched.setattr(relay_steps, "move", refuse)
        assert relay() == "relayed 0 rows"
    assert "WRONGTYPE" in rows(database).get().refused
    result.refresh()
    assert str(result.status) == "READY"
    assert relay() == "relayed 0 rows"
    assert relay(retry=True) == "relayed 1 row"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_relay_command_ends_at_a_signal(tmp_path, redis_url, number, project):
    manage(tmp_path, redis_url, "migrate", "delayq").communicate(timeout=60)
    with manage(tmp_path, redis_url, "delayq_outbox") as process:
        assert "relaying to default, emails" in process.stdout.readline()
        process.send_signal(number)
        said, errors = process.communicate(timeout=30)
    assert (process.returncode, said) == (0, "relayed 0 rows\n")
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("migrated", "redis", "told"),
    [
        (False, True, "CommandError: the database has no tables of delayq: run manage.py migrate delayq"),
        (True, False, "cannot be reached"),
    ],
)
@pytest.mark.usefixtures("project")
def test_relay_command_that_cannot_work_says_so_in_one_line(tmp_path, redis_url, migrated, redis, told):
    if migrated:
        manage(tmp_path, redis_url, "migrate", "delayq").communicate(timeout=60)
    with manage(tmp_path, redis_url if redis else "redis://127.0.0.1:1", "delayq_outbox") as process:
        _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert told in said.splitlines()[-1]
    assert [line for line in said.splitlines() if line.startswith((" ", "Traceback"))] == []


def manage(folder, redis_url, *words):
    known = {"DJANGO_SETTINGS_MODULE": "tests.support.django_app.project", "DELAYQ_URL": redis_url}
    return Process(
        [sys.executable, "-m", "django", *words],
        cwd=ROOT,
        env={**os.environ, **known, "DJANGO_DATABASE": f"{folder}/app.db", "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


# Bad input


def test_without_the_app_nothing_is_enqueued(outbox, relay, database):
    from django.core.management.base import CommandError
    from django.test.utils import modify_settings

    result = outbox.add.enqueue(1)
    backend = outbox.add.get_backend()
    with modify_settings(INSTALLED_APPS={"remove": "delayq.django"}):
        (error,) = [one for one in backend.check() if one.id == "delayq.E003"]
        assert "needs the app delayq.django" in error.msg
        with pytest.raises(api().InvalidTaskBackend, match=r"add .delayq.django. to INSTALLED_APPS"):
            outbox.add.enqueue(1)
        with pytest.raises(api().InvalidTaskBackend, match=r"add .delayq.django. to INSTALLED_APPS"):
            result.refresh()
        with pytest.raises(CommandError):
            relay()
    assert rows(database).count() == 1


def test_missing_tables_are_named(outbox, relay, database):
    from django.core.management import call_command
    from django.core.management.base import CommandError

    call_command("migrate", "delayq", "zero", database=database, verbosity=0)
    try:
        for act in (lambda: outbox.add.enqueue(1), lambda: outbox.add.get_result("default@unknown")):
            with pytest.raises(OutboxError, match=r"run manage.py migrate delayq"), atomic(database):
                act()
        with pytest.raises(CommandError, match=r"run manage.py migrate delayq"):
            relay()
    finally:
        call_command("migrate", "delayq", database=database, verbosity=0)
    assert living(outbox) == 0


def test_transaction_that_has_failed_takes_no_task(outbox, database):
    from django.db import transaction

    with atomic(database):
        transaction.set_rollback(True, using=database)
        with pytest.raises(transaction.TransactionManagementError):
            outbox.add.enqueue(1)
    assert not rows(database).exists()


def test_arguments_that_are_too_large_leave_the_transaction_well(outbox, relay, database):
    with atomic(database):
        with pytest.raises(PayloadError):
            outbox.add.enqueue("x" * (2 << 20))
        with pytest.raises((TypeError, ValueError)):
            outbox.add.enqueue(object())
        outbox.add.enqueue(1)
    assert relay() == "relayed 1 row"


@pytest.mark.parametrize(
    ("options", "told"),
    [({"backend": "other"}, "no backend other"), ({"queue": ["unknown"]}, "has no queue unknown")],
    ids=str,
)
def test_wrong_commands_are_one_line(tasks, relay, options, told):
    from django.core.management.base import CommandError

    with pytest.raises(CommandError, match=told):
        relay(**options)


def test_relay_of_an_unknown_database_is_one_line(tasks, configure, relay):
    from django.core.management.base import CommandError

    configure(enqueue="outbox", database="nowhere")
    with pytest.raises(CommandError, match="no database is named 'nowhere'"):
        relay()


def test_unused_outbox_is_not_loaded(project):
    program = (
        "from tests.django import conftest; conftest._configure()\n"
        "import sys; from delayq.django.tasks_api import task_backends; task_backends['default'].queue('default')\n"
        "heavy = ('delayq.outbox', 'delayq.django.outbox', 'sqlalchemy')\n"
        "print([name for name in sys.modules if name.startswith(heavy)])"
    )
    with Process([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        said, _ = process.communicate(timeout=60)
    assert said == "[]\n"
