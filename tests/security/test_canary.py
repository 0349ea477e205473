"""A planted word is looked for wherever delayq speaks: reprs, errors, logs, the command line.

It stands in the password of a URL and of a client, in payloads and in headers. What is meant to show payloads does.
"""

from __future__ import annotations

import asyncio
import enum
import inspect
import logging
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any, Literal

import click
import msgspec
import pytest
import redis
import redis.asyncio
from click.testing import CliRunner

import delayq
from delayq import (
    AsyncDelayQueue,
    AsyncWorker,
    ConfigurationError,
    DeclaredLimit,
    DelayqError,
    DelayQueue,
    Encrypted,
    Ended,
    NewMessage,
    RunningMessage,
    Schedule,
    UnavailableError,
    Worker,
)
from delayq.cli import main
from delayq.delivery import Smtp, Webhook
from delayq.queue.inspecting.lateness_report import slo_report
from tests.support.faulty_proxy import FaultyProxy
from tests.support.redis_server import RedisServer, empty
from tests.support.waiting import wait_until

CANARY = "c4n4ry"
PAYLOAD = {"word": CANARY}
HEADERS = {"bird": CANARY}
NOWHERE = f"redis://:{CANARY}@127.0.0.1:1/0"


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    """A payload that refuses much."""

    kind: Literal["a", "b"] = "a"
    user: int = 0


class Word(enum.Enum):
    A = "a"


@pytest.fixture(scope="module")
def guarded() -> Iterator[RedisServer]:
    """A server that wants the canary for a password."""
    with RedisServer("--requirepass", CANARY, tcp=True) as server:
        yield server


@pytest.fixture
def url(guarded) -> str:
    """The address of that server, emptied."""
    found = with_password(guarded.url)
    with redis.Redis.from_url(found) as client:
        empty(client)
        client.config_set("maxmemory", 0)
    return found


def with_password(url: str, password: str = CANARY) -> str:
    return url.replace("redis://", f"redis://:{password}@")


def told(error: BaseException) -> str:
    """Return all that an error says: itself, and its traceback with those it came from."""
    return "\n".join([repr(error), str(error), repr(error.args), *traceback.format_exception(error)])


# Public objects


@pytest.fixture
def instances(url) -> dict[str, Any]:
    """One of everything public that can be held in hands, all of a queue of private messages."""
    taken: dict[str, Any] = {"Encrypted": Encrypted({"k": 4 * CANARY.encode()})}
    taken["QueueCipher"] = taken["Encrypted"].for_queue("reminders")
    with DelayQueue("reminders", url=url, events=True) as queue:
        private = NewMessage(PAYLOAD, id="a", headers=HEADERS)
        taken["SentMany"] = queue.send_many([private, NewMessage(PAYLOAD, id="b", headers=HEADERS)], run="nightly")
        taken["Sent"] = queue.send_delay_msg(PAYLOAD, id="c", headers=HEADERS)
        taken["Owner"] = queue.send_delay_msg(PAYLOAD, id="c", headers=HEADERS).owner

        @queue.hooks.around_send
        def keep(sending: Any) -> Iterator[None]:
            taken["Sending"], taken["OutgoingMessage"] = sending, sending.messages[0]
            yield

        queue.send_delay_msg(PAYLOAD, 60, id="d", headers=HEADERS)
        taken["Hooks"], taken["Ended"] = queue.hooks, Ended("dead", "reminders", "a", "", 1, 0, "no such user")
        taken["Lease"] = lease = queue.lease(n=2)
        taken["Message"], other = lease
        other.reject("no such user")
        taken["MessageInfo"], taken["Page"] = queue.get("a"), queue.list("active")
        taken["Why"] = queue.why("a")
        taken["Reason"] = taken["Why"].reasons[0]
        taken["SearchPage"] = queue.search(CANARY)
        taken["Match"] = taken["SearchPage"].matches[0]
        assert taken["MessageInfo"].payload == PAYLOAD
        taken |= {
            "Counts": queue.counts(),
            "Stats": queue.stats(),
            "Forecast": queue.forecast(),
            "RunInfo": queue.runs()[0],
        }
        taken["ForecastBucket"] = taken["Forecast"].buckets[0]
        taken["DeadGroup"] = queue.dead.groups()[0]
        taken |= {"DeadLetter": queue.dead, "Redriven": queue.dead.redrive(all=True), "NewMessage": private}
        taken |= {"MessageEvent": list(queue.events()), "DelayQueue": queue}
        queue.limits.set("remind", rate_limit="5/s")
        taken |= {"Limits": queue.limits, "Selection": queue.select("pending"), "Limit": queue.limits.list()[0]}
        taken["DeclaredLimit"] = DeclaredLimit("5/s", 1, None)
        with redis.Redis.from_url(url) as client:
            client.hdel("delayq:{reminders}:retries", "a")
        taken["Checkup"] = checkup = queue.repair(deep=True)
        taken["Finding"] = checkup.findings[0]
        options = {"payload": PAYLOAD, "headers": HEADERS, "cron": "0 9 * * *"}
        taken |= {"Schedule": Schedule("nightly", **options), "Schedules": queue.schedules}
        taken["ScheduleOutcome"] = queue.schedules.add("nightly", **options)
        taken |= {"ScheduleInfo": queue.schedules.get("nightly"), "Applied": queue.schedules.apply()}
        taken["SchedulesPage"] = queue.schedules.page()
        taken["ScheduleHistory"] = queue.schedules.history("nightly")
        assert taken["ScheduleInfo"].payload == PAYLOAD
        taken["Task"] = queue.task(name="remind")(lambda user: None)
        taken["HandlerCheck"] = checked = queue.check()
        taken["HandlerProblem"] = checked.problems[0]
        taken["Consuming"] = queue.callback(lambda message: None) and queue.start_consume()
        taken["Worker"] = Worker({queue: 1})
        wait_until(queue.workers)
        taken["WorkerInfo"] = queue.workers()[0]
        taken["QueueHistory"] = queue.history()
        taken["MemoryUsage"] = queue.memory_usage()
        taken["HistoryBucket"] = queue.history().total
        taken["SloReport"] = slo_report("99% within 1s", queue.history().total.lateness)
        taken["LatenessCounts"] = queue.history().total.lateness
        taken["RunningMessage"] = RunningMessage("a", taken["WorkerInfo"].started)
        queue.stop_consume()

    async def scene() -> None:
        async with AsyncDelayQueue("reminders", url=url) as there:
            await there.send_delay_msg(PAYLOAD, headers=HEADERS)
            taken["AsyncLease"] = lease = await there.lease()
            taken["AsyncMessage"] = next(iter(lease))
            taken.update({"AsyncDeadLetter": there.dead, "AsyncDelayQueue": there, "AsyncSchedules": there.schedules})
            taken.update({"AsyncLimits": there.limits, "AsyncSelection": there.select("pending")})
            there.callback(lambda message: None)
            taken["AsyncConsuming"] = await there.start_consume()
            taken["AsyncTask"] = there.task(name="remind")(lambda user: None)
            taken["AsyncWorker"] = AsyncWorker({there: 1})
            await there.stop_consume()

    asyncio.run(scene())
    return taken


NO_HOLDERS = {
    *(
        "QueueOptions",
        "ConsumeOptions",
        "ScheduleOptions",
        "SendOptions",
        "EditOptions",
        "TaskOptions",
        "TaskSendOptions",
        "Codec",
        "Backoff",
        "Breaker",
        "Duration",
        "Retry",
        "Outcome",
        "Reject",
        "Discard",
        "Snooze",
        "RateLimited",
        "StopWorker",
        "Pause",
    ),  # what the user wrote
    *(
        "CancelOutcome",
        "KillOutcome",
        "EditOutcome",
        "EventKind",
        "FindingKind",
        "RescheduleOutcome",
        "OccurrenceOutcome",
        "OccurrenceResult",
        "ScheduleState",
        "SendStatus",
        "State",
    ),  # words
    *(
        "Backfill",
        "OccurrenceChange",
        "OccurrenceHistory",
        "Rekeyed",
        "Forgotten",
    ),  # times and numbers, and the error that events show, too
}


def test_no_repr_shows_the_secret(instances):
    things = {name for name in delayq.__all__ if inspect.isclass(getattr(delayq, name))}
    errors = {name for name in things if issubclass(getattr(delayq, name), DelayqError)}
    assert things - errors - NO_HOLDERS <= set(instances)
    for name, thing in instances.items():
        for text in (repr(thing), str(thing), f"{thing}", repr([thing]), repr({"x": thing})):
            assert CANARY not in text, name


# Errors


def full(queue: Any) -> None:
    with redis.Redis.from_url(queue._options["url"]) as client:
        client.config_set("maxmemory", 1)


def wrong_type(queue: Any) -> None:
    with redis.Redis.from_url(queue._options["url"]) as client:
        client.set("delayq:{reminders}:messages", CANARY)


SEND = [
    ("unreachable", {"url": NOWHERE}, PAYLOAD, {}),
    ("a wrong password", {"url": "wrong password"}, PAYLOAD, {}),
    ("too large", {"max_payload": 10}, PAYLOAD, {}),
    ("no JSON", {}, {"word": CANARY, "other": object()}, {}),
    ("a set", {}, {CANARY, object()}, {}),
    ("nan", {}, {CANARY: float("nan")}, {}),
    ("half a character", {}, CANARY + "\ud800", {}),
    ("not text", {"codec": "text"}, PAYLOAD, {}),
    ("not encodable text", {"codec": "text"}, CANARY + "\ud800", {}),
    ("not bytes", {"codec": "bytes"}, CANARY, {}),
    ("of another type", {"payload_type": Strict}, PAYLOAD, {}),
    ("an enum it is not of", {"payload_type": Word}, CANARY, {}),
    ("a literal it is not of", {"payload_type": Strict}, Strict(kind=CANARY), {}),
    ("a field of another type", {"payload_type": Strict}, Strict(user=CANARY), {}),
    ("large headers", {}, 1, {"headers": {"a": CANARY * 5000}}),
    ("odd headers", {}, 1, {"headers": {"a": [CANARY]}}),
    ("headers of half a character", {}, 1, {"headers": {"a": CANARY + "\ud800"}}),
    ("no headers", {}, 1, {"headers": CANARY}),
    ("a full Redis", {"prepare": full, "deadline": "50ms"}, PAYLOAD, {"headers": HEADERS}),
    ("a full queue", {"max_length": 1, "prepare": lambda queue: None}, PAYLOAD, {"headers": HEADERS}),
    ("another key", {"prepare": wrong_type}, PAYLOAD, {"headers": HEADERS}),
]


@pytest.mark.parametrize("face", ["blocking", "asyncio"])
@pytest.mark.parametrize("case", SEND, ids=[case[0] for case in SEND])
def test_no_error_of_a_send_shows_the_secret(face, case, url):
    _, more_options, payload, more = case
    options = {"url": url, "deadline": "200ms", **more_options}
    if options["url"] == "wrong password":
        options["url"] = url.replace(CANARY, CANARY + "2")
    prepare = options.pop("prepare", lambda queue: None)
    if options.get("max_length"):
        with DelayQueue("reminders", url=url) as queue:
            queue.send_delay_msg(PAYLOAD)

    def blocking() -> None:
        with DelayQueue("reminders", **options) as queue:
            prepare(queue)
            queue.send_many([NewMessage(payload, **more)]) if more else queue.send_delay_msg(payload)

    async def asynchronous() -> None:
        async with AsyncDelayQueue("reminders", **options) as queue:
            prepare(queue)
            await (queue.send_many([NewMessage(payload, **more)]) if more else queue.send_delay_msg(payload))

    with pytest.raises(DelayqError) as caught:
        blocking() if face == "blocking" else asyncio.run(asynchronous())
    assert CANARY not in told(caught.value)


SCHEMES = ["redis", "rediss", "redis+sentinel", "rediss+cluster"]
URLS = [
    f"redis://:{CANARY}@localhost:port/0",
    f"redis://:{CANARY}@localhost:99999/0",
    f"redis://:{CANARY}/x@localhost:6379/0",
    f"redis://:{CANARY}#@localhost:6379/0",
    f"redis://:{CANARY}@[localhost:6379/0",
    f"redis://user:{CANARY}@localhost:6379/zero",
    f"redis://:x@localhost:6379/0?password={CANARY}&socket_timeout=x",
    f"redis://:x@localhost:6379/0?{CANARY}=1",
    f"redis+sentinel://:{CANARY}@localhost:26379/0",
    f"redis+cluster://:{CANARY}@localhost:6379/7",
    f"{CANARY}://localhost",
    f"http://:{CANARY}@localhost",
    f":{CANARY}@localhost",
    f"unix://:{CANARY}@/nowhere?db=x",
    f"redis://:{CANARY}@localhost:6379/0?ssl_certfile={CANARY}",
    # A password that is not percent-encoded ends at the first /, ? or #; its end is no host, path or option.
    *(f"{scheme}://:begin@{CANARY}{cut}x@127.0.0.1:1/0" for scheme in SCHEMES for cut in "/?#"),
    *(f"{scheme}://begin:1{cut}{CANARY}@127.0.0.1:1/0" for scheme in SCHEMES for cut in "/?#"),
    f"unix://:begin/{CANARY}@/nowhere",
    f"unix://:begin@{CANARY}?x@/nowhere",
    f"unix://:begin@#{CANARY}@/nowhere",
]


@pytest.mark.parametrize("face", [DelayQueue, AsyncDelayQueue])
@pytest.mark.parametrize("url", URLS, ids=range(len(URLS)))
def test_no_error_of_a_url_shows_the_secret(face, url):
    with pytest.raises(DelayqError) as caught:
        opened(face, url=url, deadline="100ms")
    assert CANARY not in told(caught.value).lower()  # the name of a host is in lower case


def opened(face: Any, **options: Any) -> None:
    """Make a queue of either face, and open it."""
    queue = face("reminders", **options)
    assert CANARY not in repr(queue)
    opening = queue.open()
    if opening is not None:
        asyncio.run(opening)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("cut", "/?#")
def test_url_that_ends_in_its_password_is_refused_with_advice(scheme, cut):
    with pytest.raises(ConfigurationError, match="percent-encode"):
        DelayQueue("reminders", url=f"{scheme}://:begin@middle{cut}end@localhost:6379/0").open()


def test_socket_may_have_an_at_sign_in_its_path(tmp_path):
    for login in ("", ":p%40ss@"):
        with pytest.raises(UnavailableError):
            DelayQueue("reminders", url=f"unix://{login}{tmp_path}/a{'' if login else '@'}b", deadline="50ms").open()


DELIVERIES: dict[str, Callable[[], object]] = {
    "webhook": lambda: Webhook(f"https://user:begin@{CANARY}/x@localhost/"),
    "webhook with a fragment": lambda: Webhook(f"https://user:begin@{CANARY}#x@localhost/"),
    "webhook of no scheme": lambda: Webhook(f"user:{CANARY}@localhost"),
    "mail server": lambda: Smtp(f"smtp://user:{CANARY}@localhost", sender="a@example.org", to="{e}", subject="x"),
    "mail server with a login": lambda: Smtp(f"u:{CANARY}@host", sender="a@example.org", to="{e}", subject="x"),
}
PROXIES = [f"foo://user:{CANARY}@localhost:1", f"http://user:{CANARY}@localhost:port", f"http://user:x@h:{CANARY}"]


@pytest.mark.parametrize("made", DELIVERIES)
def test_no_error_of_a_receiver_shows_the_secret(made):
    with pytest.raises(ConfigurationError) as caught:
        DELIVERIES[made]()
    assert CANARY not in told(caught.value)


@pytest.mark.parametrize("proxy", PROXIES, ids=range(len(PROXIES)))
def test_no_error_of_a_proxy_shows_the_secret(proxy, monkeypatch):
    monkeypatch.setenv("https_proxy", proxy)
    monkeypatch.setenv("no_proxy", "")
    with pytest.raises(ConfigurationError, match="proxy") as caught:
        Webhook("https://example.com/")
    assert CANARY not in told(caught.value)


def test_no_error_of_a_client_shows_the_secret():
    for kind, face in ((redis.Redis, DelayQueue), (redis.asyncio.Redis, AsyncDelayQueue)):
        for client in (kind(password=CANARY, decode_responses=True), {"password": CANARY}, f"redis://:{CANARY}@x"):
            with pytest.raises(DelayqError) as caught:
                face("reminders", redis=client)
            assert CANARY not in told(caught.value)
        broken = kind(host="127.0.0.1", port=1, password=CANARY, retry=None, retry_on_error=[])
        with pytest.raises(DelayqError) as caught:
            opened(face, redis=broken, deadline="50ms")
        assert CANARY not in told(caught.value)


@pytest.mark.long
@pytest.mark.faults
def test_no_error_of_a_lost_reply_shows_the_secret(guarded, url):
    with FaultyProxy(guarded.url) as proxy, DelayQueue("reminders", url=with_password(proxy.url), deadline=1) as queue:
        queue.open()
        proxy.drop_replies(1_000_000)
        with pytest.raises(DelayqError) as caught:
            queue.send_many([NewMessage(PAYLOAD, headers=HEADERS)])
        assert CANARY not in told(caught.value)


STORED = [b'{"kind": "%s"}', b'{"%s": 1}', b'{"user": "%s"}', b"%s", b'"%s', b'{"kind": ["%s"]}', b"\xff%s"]


@pytest.mark.parametrize("stored", STORED, ids=range(len(STORED)))
def test_undecodable_payload_is_not_shown(stored, url, logged):
    with DelayQueue("reminders", url=url, codec="bytes") as raw:
        raw.send_many([NewMessage(stored % CANARY.encode(), id="m", headers=HEADERS)])
    seen: list[Any] = []
    with DelayQueue("reminders", url=url, payload_type=Strict, callback=seen.append, nack_delay=0) as queue:
        queue.run(burst=True)
        found = queue.get("m")
    assert seen == []
    assert found.reason.startswith("undecodable")
    assert CANARY not in found.reason + found.error + repr(found)
    assert CANARY not in logged()


# Logs


@pytest.fixture
def logged() -> Iterator[Callable[[], str]]:
    """Return what has been logged so far, tracebacks and extras included."""
    taken: list[str] = []

    class Taking(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            extras = {name: value for name, value in vars(record).items() if name != "exc_info"}
            taken.append(logging.Formatter("%(name)s %(message)s").format(record) + repr(extras))

    handler, logger = Taking(logging.DEBUG), logging.getLogger("delayq")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield lambda: "\n".join(taken)
    logger.removeHandler(handler)
    logger.setLevel(level)


def failing(message: Any) -> None:
    raise ValueError("no such user")


@pytest.mark.faults
def test_no_log_of_failures_shows_the_secret(guarded, url, logged):
    """Failures, a Redis that goes away, a key of another type."""
    with FaultyProxy(guarded.url) as proxy:
        there = with_password(proxy.url)
        with DelayQueue("reminders", url=there, callback=failing, lease="200ms", tick="50ms") as queue:
            queue.send_many([NewMessage(PAYLOAD, headers=HEADERS, retries=1) for _ in range(3)])
            queue.start_consume()
            wait_until(lambda: "failed at attempt" in logged())
            proxy.refuse()
            wait_until(lambda: "retrying" in logged())
            queue.stop_consume(0)
        assert "no such user" in logged()

        async def scene() -> None:
            async with AsyncDelayQueue("reminders", url=url, callback=failing, tick="50ms") as there:
                await there.send_delay_msg(PAYLOAD, headers=HEADERS, retries=0)
                await there.run(burst=True)
                with redis.Redis.from_url(url) as client:
                    client.delete("delayq:{reminders}:ready")
                    client.set("delayq:{reminders}:ready", CANARY)
                await there.start_consume()
                await asyncio.to_thread(wait_until, lambda: "WRONGTYPE" in logged())
                await there.stop_consume(0)

        asyncio.run(scene())
    assert CANARY not in logged()


# The command line


def commands(group: click.Group, *words: str) -> Iterator[tuple[str, ...]]:
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        if isinstance(command, click.Group):
            yield from commands(command, *words, name)
        else:
            yield (*words, name)


ARGUMENTS: dict[str, list[list[str]]] = {
    "send": [
        ["q", '{"word": "c4n4ry"}', "--header", "bird=c4n4ry"],
        ["q", '{"word": "c4n4ry"}', "--id", "m", "--json"],
        ["q", '{"word": c4n4ry}'],
        ["q", '{"word": "c4n4ry"', "--codec", "json"],
        ["q", "1", "--header", "=c4n4ry"],
        ["q", "-", "--header", "bird=c4n4ry"],
        ["full", '{"word": "c4n4ry"}'],
    ],
    "worker": [["canary_app:queue", "--burst"], ["canary_app:queue", "--burst", "--log-json", "--log-level", "debug"]],
    "queues": [[]],
    "stats": [["q"], ["nowhere"], ["broken"]],
    "why": [["q"], ["q", "m"], ["q", "--json"], ["q", "gone"], ["broken", "m"]],
    "forecast": [["q"], ["q", "--above", "1/m"], ["q", "--json"], ["nowhere"], ["broken"]],
    "events": [["q"], ["q", "--on"], ["broken"]],
    "runs": [["q"], ["q", "nightly"]],
    "cancel": [["q", "m"], ["q", "gone"], ["broken", "m"]],
    "kill": [["q", "m"], ["q", "gone"], ["broken", "m"]],
    "forget": [
        ["q", "m", "--dry-run"],
        ["q", "--id-prefix", "m", "--yes"],
        ["q", "gone", "--yes"],
        ["broken", "m", "--yes"],
    ],
    "edit": [
        ["q", "m", "--name", "x"],
        ["q", "m", '{"word": "c4n4ry"}'],
        ["q", "m", "c4n4ry"],
        ["q", "gone", "1"],
        ["broken", "m", "1"],
    ],
    "reschedule": [["q", "m", "--delay", "1h"], ["q", "gone", "--delay", "1h"]],
    "dead redrive": [
        ["q", "--all", "--dry-run"],
        ["q", "--edit", "-"],
        ["q", "--all", "--yes"],
        ["q", "gone"],
        ["broken", "--all", "--yes"],
    ],
    "dead purge": [["q", "--all", "--dry-run"], ["q", "--all", "--yes"], ["q", "gone"]],
    "pause": [["q"], ["q", "--until", "2h", "--reason", "deploy"], ["q", "--name", "mail"], ["broken"]],
    "resume": [["q"], ["q", "--name", "mail"], ["broken"]],
    "limits list": [["q"], ["broken"]],
    "limits set": [
        ["q", "--rate", "5/s"],
        ["q", "--name", "mail", "--running", "2"],
        ["q"],
        ["broken", "--running", "2"],
    ],
    "limits remove": [["q"], ["q", "--name", "mail"], ["broken"]],
    "purge": [["q", "--dry-run"], ["q", "--yes"], ["broken", "--yes"]],
    "remove": [["q", "--yes"], ["q"], ["broken", "--yes"]],
    "acl": [["producer"], ["consumer", "admin", "--aclfile"]],
    "preload": [[]],
    "docs": [[], ["security"]],
    "doctor": [[], ["--repair"]],
    "import": [["q", "-"], ["broken", "-"], ["q", "q.jsonl", "--strict"], ["q", "gone.jsonl"]],
    "rekey": [["canary_app:queue"], ["canary_app:other"]],
    "partitions": [["q"], ["q", "--to", "4"], ["nowhere"], ["broken", "--to", "4"]],
    "check": [["canary_app:queue"], ["canary_app:queue", "--json"]],
}
SHOWING = {"list", "show", "search", "export", "dead list"}
"""The verbs that are for looking at payloads: they hide passwords all the same."""
VERBS = [" ".join(words) for words in commands(main) if words[0] not in ("spark", "demo", "torture")]


def run(url: str, *arguments: str) -> str:
    """Run a command line in this process; returns all it printed, or would print of an exception."""
    result = CliRunner().invoke(main, arguments, input='{"word": "c4n4ry"}\n{c4n4ry}\n', env={"DELAYQ_URL": url})
    raised = "" if isinstance(result.exception, SystemExit | None) else told(result.exception)
    return result.output + result.stderr + raised


@pytest.fixture
def headers() -> dict[str, str]:
    """The headers of the private messages."""
    return HEADERS


@pytest.fixture
def scene(url, tmp_path, monkeypatch, headers) -> str:
    """Queues with private messages: `q` in good order, `broken` with a key of another type."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "canary_app", raising=False)  # that of a server which is gone
    (tmp_path / "canary_app.py").write_text(
        "from delayq import DelayQueue, Encrypted\nother = DelayQueue('r', codec=Encrypted({'k': bytes(16)}))\n"
        "queue = DelayQueue('q', payload_type=dict[str, int], nack_delay='1h')\n"
        "@queue.callback\ndef fail(message):\n    raise ValueError('no such user')\n"
    )
    with DelayQueue("q", url=url, events=True) as queue:
        sent = [NewMessage(PAYLOAD, id=id, headers=headers) for id in "abcm"]
        queue.send_many(sent, run="nightly")
        queue.end_run("nightly", refusals=[("x", "no such user")])
        with queue.lease() as message:
            message.reject("no such user")
    with DelayQueue("broken", url=url) as queue:
        queue.send_many(sent)
    with redis.Redis.from_url(url) as client:
        for part in ("pending", "meta", "events", "dead"):
            client.set(f"delayq:{{broken}}:{part}", CANARY)
    return url


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.long)], ids=["a wrong url", "every url"])
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.usefixtures("scene")
def test_no_command_prints_the_secret(verb, url, guarded, caplog, every):
    urls = [
        url,
        NOWHERE,
        with_password(guarded.url, CANARY + "2"),
        f"redis://:{CANARY}@localhost:port/0",
        f"http://:{CANARY}@localhost",
        f"redis://:x@localhost:6379/0?{CANARY}=1",
        f"redis://:begin@{CANARY}/x@localhost:6379/0",
    ]
    if not every:  # each verb with another of those at which nothing answers well
        urls = [url, urls[1 + VERBS.index(verb) % (len(urls) - 1)]]
    showing = verb in SHOWING
    lines = [["q", "m"], ["q"], ["broken"]] if showing else ARGUMENTS.get(verb, [["--help"]])
    said = ""
    for address in urls[showing:]:
        for line in lines:
            said += run(address, "--timeout", "100ms", *verb.split(), *line)
            said += run(address, "--timeout", "100ms", "--traceback", *verb.split(), *line, "--json")
    assert said
    assert CANARY not in said
    assert CANARY not in caplog.text


@pytest.mark.parametrize("headers", [{}], ids=["no headers"])
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.usefixtures("scene")
def test_no_command_shows_what_the_queue_redacts(verb, url):
    with DelayQueue("q", url=url, redact=["**"]) as queue:
        queue.schedules.add("daily", every="1d", payload=PAYLOAD)
    lines = [["q", "m"], ["q"], ["q", "word"]] if verb in SHOWING else ARGUMENTS.get(verb, [["--help"]])
    said = ""
    for line in lines:
        said += run(url, *verb.split(), *line) + run(url, *verb.split(), *line, "--json")
    assert said
    assert CANARY not in said


@pytest.mark.usefixtures("scene")
def test_inspecting_shows_payloads(url):
    for line in (
        ["list", "q", "--state", "ready"],
        ["show", "q", "m"],
        ["show", "q", "m", "--json"],
        ["dead", "list", "q", "--json"],
        ["search", "q", CANARY],
        ["export", "q"],
    ):
        assert CANARY in run(url, *line)


def test_children_of_a_worker_get_the_url_from_the_environment(monkeypatch):
    started: list[list[str]] = []

    class Supervisor:
        def __init__(self, command: Callable[[int, int], list[str]], processes: int, service: object) -> None:
            started.append(command(1, 7))

        def run(self) -> int:
            return 0

    monkeypatch.setattr("delayq.cli.worker.supervisor.Supervisor", Supervisor)
    monkeypatch.setattr("delayq.cli.worker.worker.configure_logging", lambda level, as_json: None)
    run(NOWHERE, "worker", "app:queue", "--processes", "2")
    assert len(started) == 1
    assert CANARY not in " ".join(started[0])
