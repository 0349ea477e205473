"""The blocking and the asyncio API have the same names, arguments and docstrings."""

import inspect
import re
from typing import get_overloads

import pytest

from delayq import (
    AsyncConsuming,
    AsyncDeadLetter,
    AsyncDelayQueue,
    AsyncLease,
    AsyncLimits,
    AsyncMessage,
    AsyncSchedules,
    AsyncSelection,
    AsyncWorker,
    Consuming,
    DeadLetter,
    DelayQueue,
    Lease,
    Limits,
    Message,
    Schedules,
    Selection,
    Worker,
)
from delayq.broker.transport.executor import AsyncExecutor, Executor
from delayq.reminders import AsyncCalendar, Calendar
from delayq.streams import AsyncRelay, AsyncStreamDeadLetter, AsyncStreamQueue, Relay, StreamDeadLetter, StreamQueue

TWINS = [
    (DelayQueue, AsyncDelayQueue),
    (Message, AsyncMessage),
    (DeadLetter, AsyncDeadLetter),
    (Schedules, AsyncSchedules),
    (Limits, AsyncLimits),
    (Selection, AsyncSelection),
    (Calendar, AsyncCalendar),
    (Lease, AsyncLease),
    (Consuming, AsyncConsuming),
    (Executor, AsyncExecutor),
    (Worker, AsyncWorker),
    (StreamQueue, AsyncStreamQueue),
    (StreamDeadLetter, AsyncStreamDeadLetter),
    (Relay, AsyncRelay),
]

NOT_AWAITED = {
    "events": "gives an asynchronous iterator",
    "lifespan": "returns a function for an application",
    "consuming": "returns an asynchronous context manager",
    "callback": "registers a function and touches nothing",
    "batch_callback": "registers a function and touches nothing",
    "cron": "declares a schedule and touches nothing",
    "rrule": "declares a schedule and touches nothing",
    "on": "registers a function and touches nothing",
    "task": "registers a function and touches nothing",
    "every": "declares a schedule and touches nothing",
    "select": "gives an object whose methods are awaited",
    "lease": "gives an object that is awaited or entered",
    "stop": "asks for a stop and returns at once; `wait` waits",
}
"""Methods of the asyncio API that are not coroutines, and why."""


def public(kind):
    return {name: getattr(kind, name) for name in dir(kind) if not name.startswith("_")}


def methods():
    return [
        pytest.param(blocking, asynchronous, name, id=f"{blocking.__name__}.{name}")
        for blocking, asynchronous in TWINS
        for name, member in public(blocking).items()
        if inspect.isfunction(member)
    ]


def arguments(function):
    """A signature as text, without the differences between blocking and asyncio."""
    text = "; ".join(
        f"{one.kind.name} {one.name}: {one.annotation} = {one.default!r}"
        for one in inspect.signature(function).parameters.values()
        if one.name != "on_cancel"  # threads cannot be cancelled
    )
    return _blocking(text)


def _blocking(text):
    return re.sub(r"Awaitable\[object\] \| object", "object", str(text)).replace("Async", "")


@pytest.mark.table(("blocking", "asynchronous"), TWINS, ids=lambda kind: kind.__name__)
def test_twins_have_the_same_public_names(blocking, asynchronous):
    assert set(public(blocking)) == set(public(asynchronous)) - {"check_loop"}  # threads have none


@pytest.mark.table(("blocking", "asynchronous"), TWINS, ids=lambda kind: kind.__name__)
def test_twins_have_the_same_properties(blocking, asynchronous):
    for name, member in public(blocking).items():
        assert isinstance(member, property) == isinstance(public(asynchronous)[name], property), name


@pytest.mark.table(("blocking", "asynchronous", "name"), methods())
def test_twins_take_the_same_arguments(blocking, asynchronous, name):
    assert arguments(getattr(blocking, name)) == arguments(getattr(asynchronous, name))


@pytest.mark.table(("blocking", "asynchronous", "name"), methods())
def test_twins_return_the_same_types(blocking, asynchronous, name):
    one, other = (inspect.signature(getattr(kind, name)).return_annotation for kind in (blocking, asynchronous))
    assert _blocking(one) == _blocking(other)


@pytest.mark.table(("blocking", "asynchronous", "name"), methods())
def test_twins_have_the_same_docstrings(blocking, asynchronous, name):
    ours, theirs = inspect.getdoc(getattr(blocking, name)), inspect.getdoc(getattr(asynchronous, name))
    assert ours
    if blocking is Executor:
        assert theirs
    else:
        assert ours == theirs


@pytest.mark.table(("blocking", "asynchronous", "name"), methods())
def test_twins_have_the_same_overloads(blocking, asynchronous, name):
    one, other = (get_overloads(getattr(kind, name)) for kind in (blocking, asynchronous))
    assert [arguments(overload) for overload in one] == [arguments(overload) for overload in other]


@pytest.mark.table(("blocking", "asynchronous", "name"), methods())
def test_methods_of_the_asyncio_twin_are_coroutines(blocking, asynchronous, name):
    assert not inspect.iscoroutinefunction(getattr(blocking, name))
    assert inspect.iscoroutinefunction(getattr(asynchronous, name)) is (name not in NOT_AWAITED)


def test_every_listed_exception_exists():
    assert set(NOT_AWAITED) <= {case.values[2] for case in methods()}


def test_both_queues_take_the_same_options():
    assert arguments(DelayQueue.__init__) == arguments(AsyncDelayQueue.__init__)
    one, other = get_overloads(DelayQueue.__init__), get_overloads(AsyncDelayQueue.__init__)
    assert [arguments(overload) for overload in one] == [arguments(overload) for overload in other]


@pytest.mark.parametrize(
    ("blocking", "asynchronous"), [(DelayQueue, AsyncDelayQueue), (Lease, AsyncLease)], ids=lambda kind: kind.__name__
)
def test_twins_are_both_context_managers(blocking, asynchronous):
    for name in ("enter", "exit"):
        assert not inspect.iscoroutinefunction(getattr(blocking, f"__{name}__"))
        assert inspect.iscoroutinefunction(getattr(asynchronous, f"__a{name}__"))
        assert arguments(getattr(blocking, f"__{name}__")) == arguments(getattr(asynchronous, f"__a{name}__"))
        assert not hasattr(asynchronous, f"__{name}__")
        assert not hasattr(blocking, f"__a{name}__")
