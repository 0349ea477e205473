"""Tasks: functions that messages call with their arguments, in whichever process has registered them."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from delayq import (
    AsyncDelayQueue,
    Backoff,
    ConfigurationError,
    DelayQueue,
    NewMessage,
    PayloadError,
    Reject,
    SendStatus,
    current_message,
)
from delayq.values.states import State
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from decimal import Decimal


@dataclass
class Address:
    """An argument with fields."""

    city: str


def test_a_message_calls_the_function_with_its_arguments(open_queue):
    queue = open_queue()
    seen = []

    @queue.task
    def remind(user: int, text: str = "hello", **more: Any) -> bool:
        seen.append((user, text, more, current_message().name))
        return False  # a result, not a failure

    sent = remind.send(42)
    remind.send(43, text="bye", colour="red")

    assert (remind.name, remind.__name__, sent.status) == ("remind", "remind", SendStatus.NEW)
    assert (queue.get(sent.id).payload, queue.get(sent.id).name) == ({"user": 42}, "remind")
    queue.run(burst=True)
    assert seen == [(42, "hello", {}, "remind"), (43, "bye", {"colour": "red"}, "remind")]
    assert queue.stats().totals["acked"] == 2
    with pytest.raises(ConfigurationError, match="only known while a task runs"):
        current_message()


def test_a_call_of_a_task_is_a_plain_call(open_queue):
    queue = open_queue()

    @queue.task(name="adding")
    def add(one: int, other: int) -> int:
        return one + other

    assert add(1, other=2) == 3
    assert queue.counts().living == 0


def test_options_of_a_send_override_those_of_the_task(open_queue):
    queue = open_queue()
    at = datetime(2190, 1, 1, tzinfo=UTC)

    @queue.task(name="billing.remind", retries=5, delay="1h")
    def remind(user: int) -> None: ...

    plain = queue.get(remind.send(1).id)
    other = remind.options(at=at, retries=0, id="r-2", headers={"a": "b"})
    changed = queue.get(other.send(2).id)
    now = queue.get(remind.options(delay=0).send(3).id)

    assert (plain.retries_left, plain.state, plain.name) == (5, State.PENDING, "billing.remind")
    assert timedelta(minutes=59) < plain.due - now.due < timedelta(minutes=61)  # they are sent at different times
    assert (changed.id, changed.due, changed.retries_left, changed.headers) == ("r-2", at, 0, {"a": "b"})
    assert other.send(9).status is SendStatus.EXISTS
    assert other.options(replace=True).send(9).status is SendStatus.REPLACED
    assert queue.get("r-2").payload == {"user": 9}


def test_a_task_can_replace_by_default(open_queue):
    queue = open_queue()

    @queue.task(name="index", replace="after", delay="1h")
    def index(page: int) -> None: ...

    assert index.options(id="i").send(1).status is SendStatus.NEW
    assert index.options(id="i", delay=0).send(2).status is SendStatus.REPLACED
    with queue.lease():
        assert index.options(id="i").send(3).status is SendStatus.AFTER
    assert index.options(id="i", delay=0, replace=False).send(9).status is SendStatus.EXISTS
    with pytest.raises(ConfigurationError, match="replace needs the id"):
        index.send(1)
    with pytest.raises(ConfigurationError, match="replace is an option of send_many"):
        index.options(id="i").message(1)
    assert index.options(id="i", replace=False).message(1).id == "i"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"replace": "before"}, "replace must be True, False or 'after'"),
        ({"replace": True, "debounce": "1m"}, "give replace or debounce, but not both"),
        ({"replace": "after", "unique_for": "1m"}, "give unique_for or replace, but not both"),
    ],
)
def test_a_task_refuses_what_does_not_go_with_replace(open_queue, options, text):
    with pytest.raises(ConfigurationError, match=text):
        open_queue().task(name="index", **options)(lambda page: None)


def test_messages_of_tasks_are_sent_together(open_queue):
    queue = open_queue()
    seen = []

    @queue.task(retries=7)
    def remind(user: int) -> None:
        seen.append((user, current_message().retries_left))

    @queue.callback
    def other(message: Any) -> None:
        seen.append(message.payload)

    queue.send_many([remind.message(1), remind.options(id="two").message(2), "plain"])

    assert remind.options(id="m").message(1) == NewMessage({"user": 1}, id="m", name="remind", retries=7)
    assert queue.get("two").name == "remind"
    queue.run(burst=True)
    assert sorted(map(str, seen)) == ["(1, 7)", "(2, 7)", "plain"]


def test_arguments_arrive_with_the_types_of_their_parameters(open_queue):
    queue = open_queue()
    seen = []

    @queue.task
    def ship(to: Address, at: datetime, tags: set[str], price: float | None = None) -> None:
        seen.append((to, at, tags, price))

    at = datetime(2027, 1, 1, tzinfo=UTC)
    ship.send(Address("Bonn"), at, {"a"}, price=1.5)
    queue.send_delay_msg({"to": {"city": "Ulm"}, "at": "2027-01-01T00:00:00Z", "tags": ["b"]}, name="ship")

    queue.run(burst=True)

    assert seen == [(Address("Bonn"), at, {"a"}, 1.5), (Address("Ulm"), at, {"b"}, None)]


def test_wrong_arguments_are_refused_at_the_send_and_nothing_is_stored(open_queue):
    queue = open_queue()

    @queue.task
    def remind(user: int, *, at: datetime | None = None) -> None: ...

    wrong: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
        ((), {}, "missing a required argument: 'user'"),
        ((1, 2), {}, "too many positional arguments"),
        ((1,), {"when": 2}, "unexpected keyword argument 'when'"),
        (("geheim",), {}, r"Expected `int`, got `str` - at `\$.user`"),
        ((1,), {"at": "geheim"}, r"at `\$.at`"),
    ]
    for args, options, text in wrong:
        for send in (remind.send, remind.message):
            with pytest.raises(PayloadError, match=f"task remind .*{text}") as raised:
                send(*args, **options)
            assert "geheim" not in str(raised.value)
    with pytest.raises(PayloadError, match="cannot be encoded"):
        queue.task(name="any")(_take).send(object())
    with pytest.raises(ConfigurationError, match=r"unknown option 'overdue': known are .*, delay, at, "):
        remind.options(overdue=1)
    with pytest.raises(ConfigurationError, match="delay or at"):
        remind.options(delay=1, at=datetime.now(UTC))
    with pytest.raises(ConfigurationError, match="replace is an option of send_many"):
        remind.options(id="a", replace=True).message(1)
    assert queue.counts().living == 0


def _take(value):
    return value


def test_arguments_that_do_not_fit_here_are_left_to_other_processes(open_queue, caplog):
    queue = open_queue()
    seen = []
    queue.task(name="remind")(lambda user: seen.append(user))
    queue.send_delay_msg({"user": 1, "channel": "geheim"}, name="remind", id="newer")
    queue.send_delay_msg([1], name="remind", id="odd")

    queue.run(burst=True)

    for id in ("newer", "odd"):
        found = queue.get(id)
        assert (found.state, found.attempts, found.retries_left) == (State.BACKOFF, 0, 3)
    assert not seen
    assert "task remind does not take the arguments of this message: " in caplog.text
    assert caplog.text.count("task remind") == 1
    assert "geheim" not in caplog.text


def test_arguments_that_fit_nowhere_are_dead_after_unknown_for(open_queue):
    queue = open_queue(unknown_for=0)
    queue.task(name="remind")(lambda user: None)
    queue.send_delay_msg({}, name="remind")

    queue.run(burst=True)

    (dead,) = queue.dead.list().messages
    assert dead.reason.startswith("UndecodableError: task remind does not take the arguments of this message: ")
    assert "missing required field `user`" in dead.reason


def test_a_task_comes_before_the_functions_for_beginnings(open_queue):
    queue = open_queue()
    seen = []
    queue.on("invoice.")(lambda message: seen.append(("on", message.name)))
    queue.task(name="invoice.paid", aliases=["paid"])(lambda number: seen.append(("task", number)))

    queue.send_many([NewMessage({"number": 1}, name=name) for name in ("invoice.paid", "invoice.paid.late", "paid")])
    queue.run(burst=True)

    assert sorted(seen) == [("on", "invoice.paid.late"), ("task", 1), ("task", 1)]


def test_a_task_waits_by_its_own_backoff(open_queue):
    queue = open_queue(nack_delay="1h")

    @queue.task(backoff=Backoff.constant("1d"), retries=1)
    def fails(error: str) -> None:
        raise Reject("no") if error == "reject" else ValueError(error)

    fails.options(id="raised").send("oops")
    fails.options(id="rejected").send("reject")
    queue.callback(lambda message: False)
    queue.send_delay_msg(1, id="plain")
    queue.run(burst=True)

    later = queue.get("raised").deadline - queue.get("plain").deadline
    assert timedelta(hours=22) < later < timedelta(hours=24)
    assert queue.get("rejected").reason == "no"


def test_a_task_that_nacks_by_hand_waits_by_its_own_backoff(redis_url):
    with DelayQueue("reminders", url=redis_url, nack_delay="1h") as queue:
        queue.task(name="fails", backoff="1d")(lambda: current_message().nack())
        queue.send_delay_msg({}, name="fails", id="m")
        queue.run(burst=True)

        assert queue.get("m").deadline - datetime.now(UTC) > timedelta(hours=23)


def test_a_task_is_not_the_current_message_of_what_runs_after_it(open_queue):
    queue = open_queue(concurrency=1)
    seen = []
    queue.task(name="first")(lambda: seen.append(current_message().name))

    @queue.callback
    def then(message: Any) -> None:
        try:
            seen.append(current_message().name)
        except ConfigurationError:
            seen.append("none")

    queue.send_many([NewMessage({}, name="first"), 1])
    queue.run(burst=True)

    assert sorted(seen) == ["first", "none"]


def test_wrong_registrations_are_refused(open_queue):
    queue = open_queue()

    def remind(user: int) -> None: ...

    def positional(user: int, /) -> None: ...

    def several(*users: int) -> None: ...

    def unknown_type(price: Decimal) -> None: ...

    queue.task(remind)
    queue.task(remind)  # a decorator that runs again is harmless
    queue.on("letter")(lambda message: None)
    wrong: list[tuple[dict[str, Any], Any, str]] = [
        ({"name": "remind"}, positional, "takes its arguments by name|must take its arguments by name, and user"),
        ({}, several, "must take its arguments by name, and users has none"),
        ({}, unknown_type, "the parameter types of task unknown_type cannot be read: .*TYPE_CHECKING"),
        ({}, lambda user: None, "name must be 1 to 128 of"),
        ({"name": "remind"}, lambda user: None, r"name remind has a function already: .*remind \("),
        ({"name": "letter"}, lambda user: None, "name letter has a function already"),
        ({"name": "x", "aliases": ["remind"]}, lambda user: None, "name remind has a function already"),
        ({"name": "x", "aliases": "remind"}, lambda user: None, "aliases must be a list of names"),
        ({"name": "x", "retries": -1}, lambda user: None, "retries must be"),
        ({"name": "x", "delay": "soon"}, lambda user: None, "soon"),
        ({"name": "x", "backoff": "soon"}, lambda user: None, "soon"),
        ({"name": "x", "retry": 3}, lambda user: None, "unknown option 'retry': here it is retries"),
        ({"name": "x"}, 5, "must be callable, not 5"),
    ]
    for options, function, text in wrong:
        with pytest.raises(ConfigurationError, match=text):
            queue.task(**options)(function)
    with pytest.raises(ConfigurationError, match="name remind has a function already"):
        queue.on("remind")(lambda message: None)
    queue.batch_callback(lambda messages: None)
    with pytest.raises(ConfigurationError, match="cannot have a batch_callback"):
        queue.run(burst=True)


@pytest.mark.parametrize("options", [{"codec": "bytes"}, {"codec": "text"}, {"payload_type": Address}], ids=str)
def test_a_queue_whose_payloads_cannot_hold_arguments_refuses_tasks(open_queue, options):
    with pytest.raises(ConfigurationError, match="tasks need a queue with the json codec"):
        open_queue(**options).task(_take)


def test_a_blocking_queue_refuses_coroutine_functions(redis_url):
    async def remind() -> None: ...

    with (
        DelayQueue("reminders", url=redis_url) as queue,
        pytest.raises(ConfigurationError, match="task remind is a coroutine function: use it with an AsyncDelayQueue"),
    ):
        queue.task(remind)


def test_a_coroutine_function_runs_in_the_event_loop(redis_url):
    async def main() -> list[Any]:
        seen: list[Any] = []
        async with AsyncDelayQueue("reminders", url=redis_url) as queue:

            @queue.task(backoff="1d", retries=1)
            async def remind(user: int) -> None:
                await asyncio.sleep(0)
                seen.append((user, current_message().id, asyncio.get_running_loop() is loop))
                if user == 2:
                    raise ValueError(user)

            loop = asyncio.get_running_loop()
            await remind.options(id="a").send(1)
            await remind.options(id="b").send(2)
            await queue.run(burst=True)
            failed = await queue.get("b")
            assert failed is not None
            assert failed.deadline is not None
            assert failed.deadline - datetime.now(UTC) > timedelta(hours=23)
        return seen

    assert asyncio.run(main()) == [(1, "a", True), (2, "b", True)]


def test_keys_that_json_writes_as_text_arrive_as_numbers(open_queue):
    queue = open_queue()
    seen = []

    @queue.task
    def price(amounts: dict[int, float]) -> None:
        seen.append(amounts)

    price.send({7: 1.5})
    queue.run(burst=True)

    assert seen == [{7: 1.5}]


def test_what_would_not_be_read_again_is_refused_at_the_send(open_queue):
    class Strict(msgspec.Struct, forbid_unknown_fields=True):
        city: str

    class More(Strict):
        street: str

    def ship(to: Strict) -> None: ...

    ship.__annotations__["to"] = Strict
    queue = open_queue()
    with pytest.raises(PayloadError, match="task ship does not take these arguments: "):
        queue.task(ship).send(More("Bonn", "Am Hof"))
    assert queue.counts().living == 0


def test_one_function_is_a_task_of_several_queues(redis_url):
    queues = [DelayQueue(name, url=redis_url) for name in ("mail", "sms")]
    seen = []

    @queues[0].task
    def remind(user: int) -> None:
        seen.append((current_message().queue, user))

    other = queues[1].task(retries=0)(remind)
    for task in (remind, other):
        task.send(1)
        with pytest.raises(PayloadError, match="Expected `int`"):
            task.send("1")  # type: ignore[arg-type]
    for queue in queues:
        queue.run(burst=True)
        queue.close()

    assert seen == [("mail", 1), ("sms", 1)]


def test_partials_classes_and_methods_are_tasks_too(open_queue):
    queue = open_queue()
    seen = []

    class Letter:
        def __init__(self, to: Address) -> None:
            seen.append(to)

        @classmethod
        def post(cls, to: Address, *, times: int = 1) -> None:
            seen.append((to, times))

    queue.task(name="letter")(Letter).send(Address("Bonn"))
    queue.task(Letter.post).send(Address("Ulm"))
    queue.task(name="twice")(partial(Letter.post, times=2)).send(Address("Kiel"))
    queue.run(burst=True)

    assert sorted(map(str, seen)) == ["(Address(city='Kiel'), 2)", "(Address(city='Ulm'), 1)", "Address(city='Bonn')"]
    with pytest.raises(
        ConfigurationError, match="the parameters of task least cannot be read: write a Python function"
    ):
        queue.task(name="least")(min)


def test_an_object_whose_call_is_a_coroutine_is_a_task_too(redis_url):
    class Remind:
        async def __call__(self, user: int) -> None:
            await asyncio.sleep(0)
            seen.append((user, current_message().name))

    async def main() -> None:
        async with AsyncDelayQueue("reminders", url=redis_url) as queue:
            await queue.task(name="remind")(Remind()).send(1)
            await queue.run(burst=True)

    seen: list[Any] = []
    asyncio.run(main())
    assert seen == [(1, "remind")]


def test_functions_that_block_run_in_threads_of_an_asyncio_queue_at_a_time(redis_url):
    both = threading.Barrier(2)
    seen: list[Any] = []

    def remind(user: int) -> None:
        both.wait(10)  # passes only if another one runs beside it
        seen.append((user, current_message().payload))

    async def main() -> None:
        async with AsyncDelayQueue("reminders", url=redis_url, concurrency=2) as queue:
            task = queue.task(remind)
            await queue.send_many([task.message(1), task.message(2)])
            await queue.run(burst=True)

    asyncio.run(main())
    assert sorted(seen) == [(1, {"user": 1}), (2, {"user": 2})]


def test_several_queues_in_one_worker_call_their_tasks(open_queue, face):
    seen = []
    queues = [open_queue(name) for name in ("critical", "low")]
    for queue in queues:
        note = queue.task(name="note")(lambda n: seen.append((current_message().queue, n)))
        queue.send_many([note.message(n) for n in range(3)])
    worker = face.worker({queues[0]: 2, queues[1]: 1})
    worker.start_consume()
    wait_until(lambda: len(seen) == 6)
    worker.stop_consume()

    assert sorted(seen) == [(name, n) for name in ("critical", "low") for n in range(3)]
