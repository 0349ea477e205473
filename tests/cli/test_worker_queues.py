"""`delayq worker` with several queues: which it finds, how they drain and stop together, and what one failure does."""

import re
import signal
import textwrap
from pathlib import Path

import pytest

from delayq import AsyncDelayQueue, DelayQueue
from delayq.cli.support.app_loader import find_queues
from delayq.streams import StreamQueue
from tests.cli.conftest import Program, Start

pytestmark = pytest.mark.timeout(180)  # a process starts in a second, or in ten on a machine that is busy

SHOP = """
import asyncio, time
from pathlib import Path
from delayq import AsyncDelayQueue, DelayQueue
from delayq.errors import UnavailableError
from delayq.streams import StreamQueue

orders = DelayQueue("orders", tick=0.2)
mails = AsyncDelayQueue("mails", tick=0.2)
tasks = StreamQueue("tasks", tick=0.2)
also_orders = orders  # the same object: served once
sender = DelayQueue("mails")  # the same queue, without a callback: only sends

def note(text):
    with open("done", "a") as done:
        done.write(f"{text}\\n")

def fail(*_, **__):
    raise UnavailableError("gone for good")

def cancel(name):
    for task in asyncio.all_tasks():
        if task.get_name() == name:
            task.cancel()

@orders.callback
def order(message):
    payload = message.payload
    note(f"start orders {payload['n']}")
    if payload.get("forward"):
        sender.send_delay_msg(payload | {"n": payload["n"] + 1})
    if payload.get("stop"):
        orders.stop_consume()
    while payload.get("wait") and not Path("go").exists():
        time.sleep(0.01)
    note(f"end orders {payload['n']}")

@mails.callback
async def mail(message):
    payload = message.payload
    note(f"start mails {payload['n']}")
    if payload.get("forward"):
        await asyncio.to_thread(tasks.send, payload | {"n": payload["n"] + 1})
    if "fail" in payload.get("then", ""):
        orders.executor.run = fail  # its consumer cannot go on, whatever happens
        while orders._consuming.running:
            await asyncio.sleep(0.01)
    if "cancel" in payload.get("then", ""):
        cancel("delayq-mails")
    while payload.get("wait") and not Path("go").exists():
        await asyncio.sleep(0.01)
    note(f"end mails {payload['n']}")

@tasks.callback
def task(message):
    payload = message.payload
    note(f"start tasks {payload['n']}")
    if payload.get("forward"):
        orders.send_delay_msg({"n": payload["n"] + 1})
    while payload.get("wait") and not Path("go").exists():
        time.sleep(0.01)
    note(f"end tasks {payload['n']}")
"""

PERSISTENT = ("--appendonly", "yes", "--appendfsync", "always")
NAMES = ["orders", "mails", "tasks"]
CONSUMING = [f"consuming {name}, 1 at a time" for name in NAMES]


@pytest.fixture
def shop(tmp_path):
    """Writes the module `shop` into the test's folder; returns what its callbacks have recorded."""
    (tmp_path / "shop.py").write_text(SHOP)
    done = tmp_path / "done"

    def noted() -> list[str]:
        return done.read_text().splitlines() if done.exists() else []

    return noted


@pytest.fixture
def orders(redis_url):
    with DelayQueue("orders", url=redis_url) as queue:
        yield queue


@pytest.fixture
def mails(redis_url):
    with DelayQueue("mails", url=redis_url) as queue:
        yield queue


@pytest.fixture
def tasks(redis_url):
    with StreamQueue("tasks", url=redis_url) as queue:
        yield queue


def all_consume(program: Program) -> None:
    for line in CONSUMING:
        program.says(line)


# Which queues


def test_module_serves_all_its_queues(start: Start, shop, orders, mails, tasks):
    orders.send_delay_msg({"n": 1})
    mails.send_delay_msg({"n": 2})
    tasks.send({"n": 3})
    ended = start("worker", "shop", "--burst").ended()
    assert ended.code == 0, ended.err
    assert sorted(shop()) == sorted(
        f"{what} {on}" for what in ("start", "end") for on in ("orders 1", "mails 2", "tasks 3")
    )
    assert all(ended.err.count(f"draining {name}, 1 at a time") == 1 for name in NAMES)
    assert all(ended.err.count(f"finished {name}") == 1 for name in NAMES)
    assert ended.err.count("Redis has no append-only file") == 1


def test_only_the_given_queues_are_served(start: Start, shop, orders, mails, tasks):
    for queue in (orders, mails):
        queue.send_delay_msg({"n": 1})
    tasks.send({"n": 1})
    ended = start("worker", "shop:mails", "shop:tasks", "--burst", "--concurrency", "3").ended()
    assert ended.code == 0, ended.err
    assert sorted(shop()) == ["end mails 1", "end tasks 1", "start mails 1", "start tasks 1"]
    assert orders.counts().living == 1
    assert "draining mails, 3 at a time" in ended.err
    assert "draining tasks, 3 at a time" in ended.err


@pytest.mark.long
def test_concurrency_is_that_of_each_queue(start: Start, shop, orders, mails):
    for queue in (orders, mails):
        queue.send_many({"n": n, "wait": True} for n in range(4))
    program: Program = start("worker", "shop", "--burst", "--concurrency", "2")
    program.until(lambda: len(shop()) == 4, "two callbacks of each queue")
    assert sorted({line.split()[1] for line in shop()}) == ["mails", "orders"]
    Path("go").touch()
    assert program.ends() == 0
    assert len(shop()) == 16


def test_queues_are_found_in_their_order(shop, importing, monkeypatch):
    monkeypatch.setenv("DELAYQ_URL", "unix:///nowhere")
    assert [type(queue) for queue in find_queues(["shop"])] == [DelayQueue, AsyncDelayQueue, StreamQueue]
    assert [queue.name for queue in find_queues(["shop:tasks", "shop:also_orders"])] == ["tasks", "orders"]


MODULES = {
    "empty": "numbers = [1, 2]",
    "pulled": "from delayq.workqueue import KeyPrefix, WorkQueue\nitems = WorkQueue(KeyPrefix('items'))",
    "silent": """
        from delayq import DelayQueue
        loud = DelayQueue("loud", callback=print)
        silent = DelayQueue("silent")
    """,
    "mute": "from delayq import DelayQueue\nmute = DelayQueue('mute')",
    "twice": """
        from delayq import AsyncDelayQueue, DelayQueue
        one = DelayQueue("jobs", callback=print)
        two = AsyncDelayQueue("jobs", callback=print)
    """,
    "apart": """
        from delayq import DelayQueue
        from delayq.streams import StreamQueue
        one = DelayQueue("jobs", callback=print)
        two = DelayQueue("jobs", callback=print, prefix="other")
        three = DelayQueue("jobs", callback=print, url="redis://other.example.com")
        four = StreamQueue("jobs", callback=print)
        five = StreamQueue("jobs", callback=print, group="other")
    """,
}


@pytest.mark.parametrize(
    ("targets", "error"),
    [
        (["empty"], "empty has no queue, as in queue = DelayQueue(…)"),
        (["empty:numbers"], "empty:numbers is not a DelayQueue, but of type list"),
        (["pulled"], "pulled has no queue; the workqueue engine has no callback consumer"),
        (["pulled:items"], "the workqueue engine has no callback consumer"),
        (
            ["silent"],
            "register one with @queue.callback; or name the queues to serve: delayq worker silent:loud.",
        ),
        (
            ["silent:loud", "silent:silent"],
            "silent:silent: queue silent has no callback: register one with @queue.callback.",
        ),
        (["mute"], "mute:mute: queue mute has no callback: register one with @queue.callback."),
        (["shop:sender"], "shop:sender: queue mails has no callback"),
        (["twice"], "twice:two and twice:one are the same queue, jobs: give it once, as in delayq worker twice:one"),
        (
            ["shop:orders", "shop:also_orders"],
            "shop:also_orders and shop:orders are the same queue, orders: give it once",
        ),
        (["shop:orders", "shop:orders"], "shop:orders is given twice: give it once"),
        (["shop", "shop:mails"], "shop:mails is given twice: give it once"),
        (["shop", "nothing"], "no module 'nothing' in "),
    ],
)
def test_wrong_targets_print_one_line(cli, shop, importing, targets, error):
    for name, text in MODULES.items():
        (importing / f"{name}.py").write_text(textwrap.dedent(text))
    ended = cli("worker", *targets)
    assert (ended.code, ended.out) == (2, "")
    assert error in ended.line


def test_same_name_elsewhere_is_another_queue(importing):
    (importing / "apart.py").write_text(textwrap.dedent(MODULES["apart"]))
    assert len(find_queues(["apart"])) == 5


def test_strict_queue_keeps_the_others_from_starting(start: Start, shop, orders, tmp_path):
    (tmp_path / "strict.py").write_text("from shop import *\nsafe = DelayQueue('safe', strict=True, callback=print)\n")
    orders.send_delay_msg({"n": 1})
    ended = start("worker", "strict").ended()
    assert (ended.code, ended.out, shop()) == (4, "", [])
    assert "Redis has no append-only file" in ended.err.splitlines()[-1]


# Stopping


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_lets_the_callbacks_of_all_queues_finish(start: Start, shop, orders, mails, tasks, *, number):
    for queue in (orders, mails):
        queue.send_delay_msg({"n": 1, "wait": True})
    tasks.send({"n": 1, "wait": True})
    program: Program = start("worker", "shop")
    program.until(lambda: len(shop()) == 3, "a callback of each queue")
    program.signal(number)
    program.says(f"{number.name}: finishing running callbacks for up to 30s; another signal cuts them off")
    Path("go").touch()
    ended = program.ended()
    assert ended.code == 0
    assert sorted(shop()[3:]) == ["end mails 1", "end orders 1", "end tasks 1"]
    assert all(ended.err.count(f"stopped {name}\n") == 1 for name in NAMES)
    assert (orders.counts().living, mails.counts().living, tasks.counts().living) == (0, 0, 0)


@pytest.mark.parametrize("second", [True, False], ids=["second signal", "grace is over"])
def test_callbacks_of_all_queues_are_cut_off(start: Start, shop, orders, mails, tasks, *, second):
    for queue in (orders, mails):
        queue.send_delay_msg({"n": 1, "wait": True}, id="a")
    tasks.send({"n": 1, "wait": True}, id="a")
    program: Program = start("worker", "shop", *(() if second else ("--grace", "100ms")))
    program.until(lambda: len(shop()) == 3, "a callback of each queue")
    program.signal()
    if second:
        program.says("finishing running callbacks")
        program.signal()
    ended = program.ended()
    assert ended.code == 1
    assert ended.err.count("messages that were cut off will be delivered again") == 3
    assert [queue.get("a").state for queue in (orders, mails, tasks)] == ["ready", "ready", "backoff"]
    assert not any(line.startswith("end") for line in shop())


def test_one_queue_that_is_cut_off_counts(start: Start, shop, orders, mails):
    orders.send_delay_msg({"n": 1, "wait": True}, id="a")
    program: Program = start("worker", "shop", "--grace", "100ms")
    program.until(shop, "the callback")
    all_consume(program)
    program.signal()
    ended = program.ended()
    assert ended.code == 1
    assert "stopped mails\n" in ended.err
    assert "stopped orders; messages that were cut off will be delivered again" in ended.err


@pytest.mark.long
def test_a_callback_may_stop_its_queue_only(start: Start, shop, orders, mails):
    orders.send_delay_msg({"n": 1, "stop": True})
    program: Program = start("worker", "shop")
    program.says("finished orders; still consuming mails, tasks")
    mails.send_delay_msg({"n": 2})
    program.until(lambda: "end mails 2" in shop(), "a mail")
    program.signal()
    assert program.ends() == 0


# Draining


def test_burst_drains_what_its_callbacks_send_to_other_queues(start: Start, shop, orders, mails, tasks):
    orders.send_delay_msg({"n": 1, "forward": True})
    assert start("worker", "shop", "--burst").ends() == 0
    starts = [line for line in shop() if line.startswith("start")]  # a callback may end after the next has begun
    assert starts == ["start orders 1", "start mails 2", "start tasks 3", "start orders 4"]
    assert len([line for line in shop() if line.startswith("end")]) == 4


@pytest.mark.long
def test_burst_does_not_restart_a_queue_that_was_stopped(start: Start, shop, orders, mails):
    orders.send_many([{"n": 1, "stop": True}, {"n": 2}])
    mails.send_delay_msg({"n": 3})
    assert start("worker", "shop", "--burst").ends() == 0
    assert len([line for line in shop() if line.startswith("end orders")]) == 1
    assert orders.counts().living == 1


# Failures


@pytest.mark.long
def test_failed_queue_stops_the_worker_after_the_others_have_drained(start: Start, shop, orders, mails, tasks):
    tasks.send({"n": 1, "wait": True})
    program: Program = start("worker", "shop")
    program.until(shop, "the callback that runs")
    all_consume(program)
    mails.send_delay_msg({"n": 2, "then": "fail"})
    program.says("orders failed: gone for good; stopping the worker, which serves all of its queues or none")
    Path("go").touch()
    ended = program.ended()
    assert (ended.code, ended.err.splitlines()[-1]) == (69, "delayq: gone for good")
    assert {"end mails 2", "end tasks 1"} <= set(shop())


@pytest.mark.long
def test_cancelled_consumer_stops_the_worker(start: Start, shop, orders, mails):
    mails.send_delay_msg({"n": 1, "then": "cancel"})
    ended = start("worker", "shop").ended()
    assert (ended.code, ended.err.splitlines()[-1]) == (1, "delayq: the consumer of mails was cancelled")
    assert "stopped orders\n" in ended.err


@pytest.mark.long
def test_worst_exit_code_of_all_queues_is_that_of_the_worker(start: Start, shop, orders, mails):
    mails.send_delay_msg({"n": 1, "then": "fail and cancel"})
    ended = start("worker", "shop").ended()
    assert (ended.code, ended.err.splitlines()[-1]) == (69, "delayq: gone for good")
    assert "the consumer of mails was cancelled" in ended.err


@pytest.mark.long
def test_failed_process_of_several_is_replaced_with_all_its_queues(start: Start, shop, orders, mails):
    program: Program = start("worker", "shop", "--processes", "2")
    for line in CONSUMING:
        program.says(line, 2)
    mails.send_delay_msg({"n": 1, "then": "cancel"}, retries=0)
    program.says("ended with exit code 1; starting another in 0.5 s")
    for line in CONSUMING:
        program.says(line, 3)
    program.signal()
    assert program.ends() == 0


@pytest.mark.long
@pytest.mark.faults
def test_outage_and_its_end_are_logged_once_for_all_queues(start: Start, start_redis, shop):
    server = start_redis(*PERSISTENT)
    program: Program = start("worker", "shop", url=server.url)
    all_consume(program)
    with DelayQueue("orders", url=server.url) as orders, DelayQueue("mails", url=server.url) as mails:
        for n in (1, 2):
            server.kill()
            program.says("Redis does not answer", n)
            server.start()
            program.says("Redis answers again", n)
            orders.send_delay_msg({"n": n})
            mails.send_delay_msg({"n": n})
            program.until(lambda n=n: {f"end orders {n}", f"end mails {n}"} <= set(shop()), "both messages")
    program.signal()
    ended = program.ended()
    said = re.findall("Redis (?:does not answer|answers again)", ended.err)
    assert said == ["Redis does not answer", "Redis answers again"] * (len(said) // 2)
