"""The lifespan of queues in a web application, without a server."""

import asyncio
import inspect
import logging
import sys
import threading
from functools import wraps
from typing import Annotated

import httpx
import pytest
from fastapi import Depends, FastAPI

from delayq import AsyncDelayQueue, AsyncWorker, DelayQueue, Worker
from delayq.errors import ConfigurationError, NoCallbackError, UnavailableError
from delayq.testing.redis_server import free_port
from tests.support.processes import run
from tests.support.waiting import wait_until


def in_event_loop(test):
    """Run a test, which is a coroutine function, in an event loop of its own."""

    @wraps(test)
    def run_it(*args, **kwargs):
        asyncio.run(test(*args, **kwargs))

    return run_it


KINDS = [AsyncDelayQueue, DelayQueue]
every_kind = pytest.mark.parametrize("kind", KINDS)


def ignore(_):
    pass


@every_kind
@in_event_loop
async def test_the_queue_consumes_while_it_is_entered_and_is_closed_then(kind, redis_url):
    queue = kind("q", url=redis_url, callback=ignore)
    async with queue.lifespan()(object()):
        consuming = queue._consuming
        assert consuming.running
    assert not consuming.running


@every_kind
@in_event_loop
async def test_consuming_does_the_same_without_an_application(kind, redis_url):
    queue = kind("q", url=redis_url, callback=ignore)
    async with queue.consuming(concurrency=3):
        consuming = queue._consuming
        assert consuming.running
    assert not consuming.running


@pytest.mark.parametrize(("kind", "worker"), [(AsyncDelayQueue, AsyncWorker), (DelayQueue, Worker)])
@in_event_loop
async def test_a_worker_consumes_its_queues(kind, worker, redis_url):
    made = worker({kind(name, url=redis_url, callback=ignore): 1 for name in "ab"})
    async with made.consuming():
        consuming = made._consuming
        assert consuming.running
    assert not consuming.running


@every_kind
@in_event_loop
async def test_an_application_that_only_sends_needs_no_callback(kind, redis_url):
    queue = kind("q", url=redis_url)
    async with queue.lifespan(consume=False)(None):
        assert queue._consuming is None
        sent = queue.send_delay_msg(1)
        assert (await sent if inspect.isawaitable(sent) else sent).new


@every_kind
@in_event_loop
async def test_a_start_without_a_callback_fails_whether_redis_is_required_or_not(kind, redis_url):
    for required in (True, False):
        with pytest.raises(NoCallbackError):
            async with kind("q", url=redis_url).consuming(required=required):
                pass


@every_kind
@in_event_loop
async def test_a_start_without_redis_fails_within_the_timeout(kind):
    queue = kind("q", url=f"redis://127.0.0.1:{free_port()}", callback=ignore)
    with pytest.raises(UnavailableError):
        async with queue.consuming(connect_timeout="50ms"):
            pass


@every_kind
@pytest.mark.parametrize("consume", [True, False])
@in_event_loop
async def test_an_application_that_does_not_require_redis_starts_and_ends_without(kind, consume, caplog):
    queue = kind("q", url=f"redis://127.0.0.1:{free_port()}", callback=ignore)
    with caplog.at_level(logging.WARNING, "delayq.asgi"):
        async with queue.lifespan(consume=consume, required=False, connect_timeout="50ms")(None):
            assert "starts without Redis" in caplog.text


@in_event_loop
async def test_it_is_left_also_if_the_application_fails(redis_url):
    queue = AsyncDelayQueue("q", url=redis_url, callback=ignore)
    seen = []

    async def serve():
        async with queue.consuming():
            seen.append(queue._consuming)
            raise LookupError

    with pytest.raises(LookupError):
        await serve()
    assert not seen[0].running


@every_kind
@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"burst": True}, "burst is an option of run"),
        ({"consume": False, "grace": 1}, "grace is an option of consuming"),
        ({"concurrency": 0}, "concurrency"),
        ({"grace": "soon"}, "grace"),
        ({"consume": "no"}, "consume"),
        ({"required": None}, "required"),
        ({"graze": 1}, "graze"),
    ],
    ids=str,
)
def test_wrong_options_are_refused_when_the_application_is_made(kind, options, told):
    with pytest.raises(ConfigurationError, match=told):
        kind("q", url="redis://127.0.0.1:1").lifespan(**options)


@every_kind
@in_event_loop
async def test_a_queue_is_a_dependency_without_parameters(kind, redis_url):
    queue, other = kind("q", url=redis_url), kind("other", url=redis_url)
    app = FastAPI(lifespan=queue.lifespan(consume=False))

    def name(found: Annotated[object, Depends(queue)]):
        return found.name

    app.get("/name")(name)
    assert [*inspect.signature(queue).parameters] == []
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://app") as client:
        assert (await client.get("/name")).json() == "q"
        assert "parameters" not in (await client.get("/openapi.json")).json()["paths"]["/name"]["get"]
        app.dependency_overrides[queue] = lambda: other
        assert (await client.get("/name")).json() == "other"


def test_the_room_loads_no_framework():
    heavy = ["fastapi", "starlette", "uvicorn", "django", "delayq.asgi"]
    program = f"""
import sys
import threading
from delayq import DelayQueue
queue = DelayQueue("q", url="redis://localhost")
print([name for name in {heavy} if name in sys.modules])
queue.lifespan(consume=False)
print([name for name in {heavy} if name in sys.modules])
"""
    done = run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n['delayq.asgi']\n"


@every_kind
@in_event_loop
async def test_a_stop_that_is_cut_short_cuts_running_callbacks_off(kind, redis_url):
    begun, release, leave = threading.Event(), threading.Event(), asyncio.Event()
    queue = kind("q", url=redis_url, grace="1h", nack_delay="1h")

    @queue.callback
    def process(message):
        begun.set()
        release.wait(30)

    async def serve():
        async with queue.consuming():
            leave.set()
            await asyncio.to_thread(begun.wait, 20)

    with DelayQueue("q", url=redis_url) as sender:
        await asyncio.to_thread(sender.send_delay_msg, 1, id="cut")
        server = asyncio.create_task(serve())
        await leave.wait()
        consuming = queue._consuming
        await asyncio.to_thread(begun.wait, 20)
        await asyncio.to_thread(wait_until, lambda: consuming._run.driver.stopped)
        server.cancel()
        with pytest.raises(asyncio.CancelledError):
            await server
        release.set()
        assert not consuming.running
        assert sender.get("cut").attempts == 0  # it goes back, uncharged
