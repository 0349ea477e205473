"""The names that other task queues have for things: the errors for them say ours."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from delayq import AsyncDelayQueue, ConfigurationError, DelayQueue, Message
from delayq.cli import main as root
from delayq.options import QueueOptions
from delayq.queue.sending.message_options import OPTIONS as SEND_OPTIONS
from delayq.queue.tasks.task_options import TaskOptions, TaskSendOptions
from delayq.queue.tasks.tasks import Task
from delayq.values.other_names import (
    COMMANDS,
    DEAD_METHODS,
    GROUP_COMMANDS,
    LIMIT_METHODS,
    MESSAGE_METHODS,
    METHODS,
    OPTIONS,
    SCHEDULE_METHODS,
)

OWN_OPTIONS = {
    *QueueOptions.__annotations__,
    *SEND_OPTIONS,
    *TaskOptions.__annotations__,
    *TaskSendOptions.__annotations__,
    "nothing",
}


@pytest.fixture
def plain(url):
    with DelayQueue("plain", url=url) as queue:
        yield queue


def test_send_takes_a_delay_or_a_time_or_neither(queue):
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    sent = [queue.send("now"), queue.send("later", "1h"), queue.send("then", at=at, retries=7, id="then")]
    assert [one.new for one in sent] == [True, True, True]
    assert abs(sent[1].due - at) < timedelta(minutes=1)
    then = queue.get("then")
    assert (then.due, then.retries_left) == (at, 7)
    with pytest.raises(ConfigurationError, match="delay or at"):
        queue.send("both", delay=1, at=at)
    assert queue.counts().living == 3


def test_send_is_awaited_in_asyncio(url):
    async def main() -> None:
        async with AsyncDelayQueue("a", url=url) as queue:
            assert (await queue.send("later", delay="1h")).new
            with pytest.raises(ConfigurationError, match="delay or at"):
                await queue.send("both", delay=1, at=datetime.now(UTC))

    asyncio.run(main())


@pytest.mark.parametrize("name", OPTIONS)
def test_option_of_another_library_is_answered_with_ours(plain, name):
    ours = OPTIONS[name]
    assert ours.split(":")[0].split(",")[0] in OWN_OPTIONS
    for refused in (
        lambda: plain.send("x", **{name: 1}),
        lambda: plain.task(**{name: 1})(lambda user: None),
        lambda: DelayQueue("other", **{name: 1}),
    ):
        with pytest.raises(ConfigurationError, match=f"unknown option '{name}': here it is {ours}"):
            refused()


@pytest.mark.parametrize("name", METHODS)
def test_method_of_another_library_is_answered_with_ours(plain, name):
    ours = METHODS[name].split("(")[0].split(" ")[0]
    assert hasattr(plain, ours) or hasattr(Task, ours)
    for one in (plain, plain.task(name="any")(lambda user: None)):
        if hasattr(type(one), name):
            continue
        with pytest.raises(AttributeError, match=f"no attribute '{name}': here it is {ours}"):
            getattr(one, name)


@pytest.mark.parametrize(
    ("part", "names"), [("dead", DEAD_METHODS), ("limits", LIMIT_METHODS), ("schedules", SCHEDULE_METHODS)]
)
def test_method_of_a_part_of_another_library_is_answered_with_ours(plain, part, names):
    for theirs, ours in names.items():
        owner = getattr(plain, part)
        assert callable(getattr(owner, ours))
        with pytest.raises(AttributeError, match=f"no attribute '{theirs}': here it is {ours}$"):
            getattr(owner, theirs)


@pytest.mark.table(("theirs", "ours"), MESSAGE_METHODS.items())
def test_attribute_of_a_message_of_another_library_is_ours(theirs, ours):
    assert hasattr(Message, ours.split(",")[0])
    assert not hasattr(Message, theirs)


def test_commands_of_another_library_are_answered_with_ours():
    known = {name: root.get_command(None, name) for name in root.list_commands(None)}
    for theirs, ours in COMMANDS.items():
        assert theirs not in known
        assert ours.split(",")[0].split(" ")[0] in known
    for group, names in GROUP_COMMANDS.items():
        within = known[group].list_commands(None)
        assert {ours.replace("run_now", "run") for ours in names.values()} <= set(within)


def test_other_missing_methods_are_answered_as_python_does(plain):
    with pytest.raises(AttributeError, match=r"'DelayQueue' object has no attribute 'sned'$") as raised:
        plain.sned  # noqa: B018 - the error is what is looked at
    assert raised.value.name == "sned"
