"""Django's tasks on delayq: what the reference backends promise, case by case, and what crosses a transaction."""

from __future__ import annotations

import asyncio
import sys
import threading
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from uuid import uuid4

import pytest

from delayq.errors import PayloadError, UnavailableError
from delayq.testing.redis_server import free_port
from tests.support.processes import run
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]


def statuses(told):
    return [(name.removeprefix("task_"), status) for name, status, _ in told]


# Enqueue and run


def test_enqueued_task_is_ready_then_successful(tasks, work, signals):
    result = tasks.add.enqueue(1, two=2)
    assert (str(result.status), result.is_finished, result.attempts) == ("READY", False, 0)
    assert (result.args, result.kwargs, result.backend) == ([1], {"two": 2}, "default")
    assert result.enqueued_at is not None
    assert [result.started_at, result.last_attempted_at, result.finished_at, result.errors] == [None, None, None, []]
    with pytest.raises(ValueError, match="not finished yet"):
        _ = result.return_value
    result.refresh()
    assert str(result.status) == "READY"

    work()
    result.refresh()
    assert (str(result.status), result.return_value, result.attempts, result.errors) == ("SUCCESSFUL", 3, 1, [])
    assert result.is_finished
    assert result.enqueued_at <= result.started_at == result.last_attempted_at <= result.finished_at
    assert statuses(signals) == [("enqueued", "READY"), ("started", "RUNNING"), ("finished", "SUCCESSFUL")]
    assert {sender for _, _, sender in signals} == {"DelayqBackend"}


def test_asynchronous_twins(tasks, work):
    async def enqueue():
        result = await tasks.add.aenqueue(3, two=4)
        await asyncio.to_thread(work)
        await result.arefresh()
        return result, await tasks.add.aget_result(result.id)

    result, found = asyncio.run(enqueue())
    assert (result.return_value, found.return_value) == (7, 7)


def test_coroutine_function_is_a_task(tasks, work):
    result = tasks.add_async.enqueue(2, 2)
    work()
    result.refresh()
    assert result.return_value == 4


def test_result_is_found_by_its_id_in_another_object(tasks, work):
    result = tasks.add.enqueue(1)
    assert tasks.add.get_result(result.id).args == [1]
    work()
    found = tasks.add.get_result(result.id)
    assert (found.return_value, found.task.func, found.args, found.kwargs) == (1, tasks.add.func, [1], {})
    assert found.enqueued_at == result.enqueued_at


def test_running_task_says_so(tasks, work):
    result = tasks.wait.enqueue()
    worker = threading.Thread(target=work)
    worker.start()
    try:
        assert tasks.begun.wait(20)
        result.refresh()
        assert (str(result.status), result.attempts, result.finished_at) == ("RUNNING", 1, None)
        assert result.started_at is not None
    finally:
        tasks.release.set()
        worker.join(20)
    result.refresh()
    assert (str(result.status), result.return_value) == ("SUCCESSFUL", None)


def test_failed_task_has_the_class_and_the_traceback_of_its_error(tasks, work, signals):
    result = tasks.fail.enqueue("broken pipe")
    work()
    result.refresh()
    assert (str(result.status), result.attempts, result.is_finished) == ("FAILED", 1, True)
    (error,) = result.errors
    assert error.exception_class is ValueError
    assert error.exception_class_path == "builtins.ValueError"
    assert error.traceback.startswith("Traceback (most recent call last)")
    assert error.traceback.endswith("ValueError: broken pipe\n")
    with pytest.raises(ValueError, match="Task failed"):
        _ = result.return_value
    assert (result.args, tasks.fail.get_result(result.id).args) == (["broken pipe"], ["broken pipe"])
    assert result.finished_at is not None
    assert statuses(signals)[-1] == ("finished", "FAILED")


def test_task_that_fails_once_is_ready_again_then_successful(tasks, configure, work, signals):
    configure(default_retries=2, nack_delay="1h")
    result = tasks.fail_once.enqueue("a")
    queue = tasks.add.get_backend().queue("default")
    work()
    result.refresh()
    assert (str(result.status), result.attempts, len(result.errors)) == ("READY", 1, 1)
    first = result.started_at
    queue.reschedule(result.id.partition("@")[2], 0)
    work()
    result.refresh()
    assert (str(result.status), result.return_value, result.attempts) == ("SUCCESSFUL", 2, 2)
    assert [one.exception_class for one in result.errors] == [KeyError]
    assert first == result.started_at <= result.last_attempted_at
    assert [name for name, _ in statuses(signals)] == ["enqueued", "started", "started", "finished"]


def test_system_exit_fails_the_task_alone(tasks, work):
    result, other = tasks.exit_process.enqueue(), tasks.add.enqueue(1)
    work()
    result.refresh()
    other.refresh()
    assert (str(result.status), result.errors[0].exception_class) == ("FAILED", SystemExit)
    assert str(other.status) == "SUCCESSFUL"


def test_long_traceback_keeps_its_end(tasks, work):
    result = tasks.fail_deep.enqueue("text ")
    work()
    result.refresh()
    (error,) = result.errors
    assert error.exception_class is RuntimeError
    assert error.traceback.startswith("…")
    assert error.traceback.endswith("text text \n")


def test_rejected_task_has_failed_at_once(tasks, configure, work):
    configure(default_retries=5)
    result = tasks.reject.enqueue()
    work()
    result.refresh()
    assert (str(result.status), result.attempts) == ("FAILED", 1)
    assert "no such customer" in result.errors[0].traceback


def test_discarded_task_has_failed(tasks, work, signals):
    result = tasks.discard.enqueue()
    work()
    result.refresh()
    assert (str(result.status), result.errors[0].traceback) == ("FAILED", "paid")
    assert statuses(signals)[-1] == ("finished", "FAILED")


def test_result_has_the_arguments_that_were_sent(tasks, work):
    result = tasks.change_arguments.enqueue(["one"])
    work()
    found = tasks.change_arguments.get_result(result.id)
    assert (found.args, found.return_value) == ([["one"]], ["one", "more"])


def test_without_the_backport_an_old_django_says_what_is_missing(project, monkeypatch):
    from django.core.exceptions import ImproperlyConfigured

    monkeypatch.setattr(tasks_api(), "_PACKAGE", "no_such_package")
    with pytest.raises(ImproperlyConfigured, match="pip install django-tasks"):
        tasks_api()._of(".base", "Task")


def test_snoozed_task_runs_again(tasks, work):
    result = tasks.snooze_once.enqueue("s")
    work()
    result.refresh()
    assert (str(result.status), result.return_value, result.errors) == ("SUCCESSFUL", "woken", [])


@pytest.mark.parametrize(("name", "error"), [("return_no_json", TypeError), ("return_much", PayloadError)])
def test_result_that_cannot_be_kept_fails_the_task_without_another_try(tasks, configure, work, name, error):
    configure(default_retries=5)
    result = getattr(tasks, name).enqueue()
    work()
    result.refresh()
    assert (str(result.status), result.attempts) == ("FAILED", 1)
    assert issubclass(result.errors[0].exception_class, error)


def test_killed_task_has_failed(tasks):
    result = tasks.add.using(run_after=datetime.now().astimezone() + timedelta(hours=1)).enqueue(1)
    tasks.add.get_backend().queue("default").kill(result.id.partition("@")[2])
    result.refresh()
    assert str(result.status) == "FAILED"
    assert "killed" in result.errors[0].traceback
    assert issubclass(result.errors[0].exception_class, Exception)


def test_task_whose_worker_has_died_is_running_then_failed(tasks, work):
    result = tasks.add.enqueue(1)
    message = next(iter(tasks.add.get_backend().queue("default").lease("300ms")))
    message.report({"started": 1, "last": 1, "running": True, "workers": ["dead"], "errors": []})
    result.refresh()
    assert (str(result.status), result.worker_ids) == ("RUNNING", ["dead"])

    def has_failed():
        work()
        result.refresh()
        return str(result.status) == "FAILED"

    wait_until(has_failed)
    assert "lease expired" in result.errors[0].traceback
    assert tasks.seen == []


def test_task_gets_its_context(tasks, work):
    result = tasks.tell_context.enqueue("hi")
    work()
    result.refresh()
    assert result.return_value == ["hi", 1, result.id, "RUNNING"]
    assert tasks.seen[0].args == ["hi"]


def test_queue_priority_and_time_of_a_task_are_those_of_its_message(tasks, work):
    at = datetime.now().astimezone() + timedelta(hours=1)
    result = tasks.send_email.using(run_after=at).enqueue("ada@example.org")
    backend = tasks.add.get_backend()
    stored = backend.queue("emails").get(result.id.partition("@")[2])
    assert (stored.name, stored.priority) == ("tests.support.django_app.tasks.send_email", 5)
    assert abs(stored.due - at) < timedelta(milliseconds=2)
    work()
    found = tasks.send_email.get_result(result.id)
    assert (str(found.status), found.task.queue_name, found.task.priority) == ("READY", "emails", 5)
    assert abs(found.task.run_after - at) < timedelta(milliseconds=2)
    assert tasks.seen == []


def test_higher_priority_runs_first(tasks, work):
    for priority in (0, 100, -100):
        tasks.add.using(priority=priority).enqueue(priority)
    work(concurrency=1)
    assert [one for one, _ in tasks.seen] == [100, 0, -100]


def test_worker_serves_the_queues_that_it_is_told(tasks, work):
    tasks.add.enqueue(1)
    tasks.send_email.enqueue("ada@example.org")
    work(queue=["emails"])
    assert tasks.seen == ["ada@example.org"]


def test_time_without_zone_is_that_of_the_settings_without_use_tz(tasks, project):
    from django.test.utils import override_settings

    with override_settings(USE_TZ=False):
        at = datetime.now() + timedelta(hours=1)  # noqa: DTZ005 - as sites without USE_TZ have it
        found = tasks.add.get_result(tasks.add.using(run_after=at).enqueue(1).id)
        assert (found.enqueued_at.tzinfo, abs(found.task.run_after - at) < timedelta(milliseconds=2)) == (None, True)


# Transactions


@pytest.fixture
def alice(tasks):
    from django.contrib.auth.models import User

    User.objects.all().delete()
    return lambda: User.objects.create(username=f"alice-{uuid4()}")


def test_task_is_sent_when_the_transaction_commits(tasks, work, alice, signals):
    from django.db import transaction

    with transaction.atomic():
        alice()
        result = tasks.count_users.enqueue()
        assert (result.enqueued_at, signals) == (None, [])
        with pytest.raises(tasks_api().TaskResultDoesNotExist):
            result.refresh()
        work()  # the row is not there yet, and neither is the task
    assert statuses(signals) == [("enqueued", "READY")]
    work()
    result.refresh()
    assert result.return_value == 1


def tasks_api():
    from delayq.django import tasks_api

    return tasks_api


def test_task_is_never_sent_after_a_rollback(tasks, work, alice, signals):
    from django.db import transaction

    def place():
        with transaction.atomic():
            alice()
            tasks.add.enqueue(1)
            raise LookupError

    with pytest.raises(LookupError):
        place()
    work()
    assert (signals, tasks.seen) == ([], [])


def test_savepoint_that_is_rolled_back_takes_its_tasks_along(tasks, work, alice):
    from django.db import transaction

    with transaction.atomic():
        alice()
        tasks.add.enqueue(1)
        with transaction.atomic():
            tasks.add.enqueue(2)
            transaction.set_rollback(True)
    work()
    assert tasks.seen == [(1, 0)]


def test_now_does_not_wait_for_the_transaction(tasks, configure, work):
    from django.db import transaction

    configure(enqueue="now")
    with transaction.atomic():
        tasks.add.enqueue(1)
        transaction.set_rollback(True)
    work()
    assert tasks.seen == [(1, 0)]


def test_sending_opens_no_connection_of_the_database(tasks):
    from django.db import connection, connections

    connections.close_all()
    tasks.add.enqueue(1)
    assert connection.connection is None


def test_database_connections_are_closed_as_around_requests(tasks, work, alice):
    tasks.count_users.enqueue()
    work()
    (used,) = tasks.connections_used
    assert used.connection is None  # CONN_MAX_AGE is 0


# Schedules


def test_declared_schedule_runs_its_task(tasks, work):
    from delayq.django import every

    assert every("1h", args=["hourly"], misfire="skip")(tasks.remember) is tasks.remember
    work()
    queue = tasks.add.get_backend().queue("default")
    assert [one.name for one in queue.schedules.list()] == ["tests.support.django_app.tasks.remember"]
    queue.schedules.run_now("tests.support.django_app.tasks.remember")
    work()
    assert tasks.seen == ["hourly"]


LOADED = """
from tests.django import conftest
conftest._configure()
from delayq.django.tasks_api import task_backends
print(*task_backends["default"].queue("default").handlers.declared)
"""


def test_schedules_are_found_as_apps_load(project):
    done = run([sys.executable, "-c", LOADED], cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stdout == "tests.support.django_app.tasks.remember\n"


@pytest.mark.parametrize("wrong", ["plain", "payload", "json"])
def test_wrong_schedules_are_refused(tasks, wrong):
    from delayq.django import cron
    from delayq.errors import ConfigurationError

    if wrong == "plain":
        with pytest.raises(ConfigurationError, match="stands above @task"):
            cron("0 9 * * *")(tasks.plain)
    elif wrong == "payload":
        with pytest.raises(ConfigurationError, match="give args and kwargs"):
            cron("0 9 * * *", payload=1)
    else:
        with pytest.raises(PayloadError, match="no JSON"):
            cron("0 9 * * *", args=[object()])(tasks.add)


# Bad input


def invalid(tasks, change):
    api = tasks_api()
    with pytest.raises(api.InvalidTask) as caught:
        change()
    return str(caught.value)


def test_wrong_tasks_are_refused(tasks):
    task = tasks_api().task
    for function in (lambda: None, tasks.Holder.method, len):
        assert "module level" in invalid(tasks, lambda function=function: task(function))
    assert "priority" in invalid(tasks, lambda: tasks.add.using(priority=101))
    assert "priority" in invalid(tasks, lambda: tasks.add.using(priority=-101))
    assert "aware" in invalid(tasks, lambda: tasks.add.using(run_after=datetime(2030, 1, 1)))  # noqa: DTZ001
    assert "not valid for backend" in invalid(tasks, lambda: tasks.add.using(queue_name="unknown"))
    assert "context" in invalid(tasks, lambda: task(takes_context=True)(tasks.plain))


NO_JSON = [object(), {1, 2}, SimpleNamespace(), datetime(2030, 1, 1), float("nan"), b"\xff"]  # noqa: DTZ001


@pytest.mark.parametrize("value", NO_JSON, ids=lambda value: type(value).__name__)
def test_arguments_that_are_no_json_are_refused_before_anything_is_sent(tasks, value, signals):
    from django.db import transaction

    with transaction.atomic(), pytest.raises((TypeError, ValueError)):
        tasks.add.enqueue(value)
    assert tasks.add.get_backend().queue("default").counts().living == 0
    assert signals == []


def test_arguments_that_are_too_large_are_refused_within_the_transaction(tasks):
    from django.db import transaction

    with transaction.atomic(), pytest.raises(PayloadError):
        tasks.add.enqueue("x" * (2 << 20))


@pytest.mark.parametrize(
    "id", ["", "nothing", "default@", "@x", "default@unknown", "other@x", "default@bad id", None, 7]
)
def test_unknown_results_are_refused(tasks, id):
    with pytest.raises(tasks_api().TaskResultDoesNotExist):
        tasks.add.get_backend().get_result(id)


def test_result_of_another_task_is_refused(tasks):
    result = tasks.add.enqueue(1)
    with pytest.raises(Exception, match="does not match"):
        tasks.fail.get_result(result.id)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"enqueue": "later"}, "one of .on_commit., .now., .outbox., not .later."),
        ({"codec": "bytes"}, "leave out the option codec"),
        ({"retrys": 3}, "retrys"),
    ],
    ids=str,
)
def test_wrong_options_are_refused(configure, options, told):
    with pytest.raises(tasks_api().InvalidTaskBackend, match=told):
        configure(**options)


def test_check_says_what_is_wrong(configure):
    assert [*configure().check()] == []
    assert "retention" in str([*configure(retention="soon").check()])
    assert "emails to" in str([*configure(QUEUES=["emails to"]).check()])
    assert "no database is named 'other'" in str([*configure(database="other").check()])
    from django.test.utils import modify_settings

    with modify_settings(INSTALLED_APPS={"remove": "delayq.django"}):
        assert "not installed" in str([*configure().check()])


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"backend": "other"}, "no backend other"),
        ({"queue": ["unknown"]}, "has no queue unknown: it has default, emails"),
        ({"concurrency": 0}, "concurrency"),
    ],
    ids=str,
)
def test_wrong_commands_are_one_line(tasks, work, options, told):
    from django.core.management.base import CommandError

    with pytest.raises(CommandError, match=told):
        work(**options)


def test_worker_of_another_backend_is_refused(configure, work):
    from django.core.management.base import CommandError

    package = tasks_api()._PACKAGE
    configure(BACKEND=f"{package}.backends.immediate.ImmediateBackend")
    with pytest.raises(CommandError, match="is no DelayqBackend"):
        work()


def test_any_queue_may_be_used_where_none_are_listed(configure, tasks, work):
    configure(QUEUES=[])
    result = tasks.add.using(queue_name="other").enqueue(5)
    work(queue=["other"])
    result.refresh()
    assert result.return_value == 5


def test_without_redis_a_send_says_so(tasks, configure):
    configure(url=f"redis://127.0.0.1:{free_port()}", deadline="50ms")
    with pytest.raises(UnavailableError):
        tasks.add.enqueue(1)


def test_message_of_no_known_task_is_left_to_other_processes(tasks, work):
    queue = tasks.add.get_backend().queue("default")
    queue.send_delay_msg({"args": [], "kwargs": {}}, name="tests.support.django_app.tasks.gone", id="gone")
    queue.send_delay_msg({"args": [], "kwargs": {}}, name="tests.support.django_app.tasks.plain", id="plain")
    work()
    assert {queue.get(id).unhandled for id in ("gone", "plain")} == {1}
    for id in ("gone", "plain"):
        with pytest.raises(LookupError, match=id):
            tasks.add.get_backend().get_result(f"default@{id}")


def test_what_another_program_has_stored_breaks_nothing(tasks, work):
    queue = tasks.add.get_backend().queue("default")
    queue.send_delay_msg(["not", "ours"], name="tests.support.django_app.tasks.wait", id="odd")
    tasks.release.set()
    assert tasks.wait.get_result("default@odd").args == []
    work()
    assert str(tasks.wait.get_result("default@odd").status) in ("SUCCESSFUL", "FAILED")
