"""The scripts of streams: header and body agree, and a failed call changes nothing."""

import inspect
import re
from dataclasses import fields
from importlib.resources import files

import pytest

from delayq import DelayQueue, NewMessage, QueueFullError, ServerError
from delayq.broker.keys import Keys
from delayq.broker.scripts import names, read_all, script
from delayq.options import read_settings
from delayq.streams import Relay, StreamQueue
from delayq.streams.calls import EntryToken, StreamCalls
from delayq.streams.keys import StreamKeys, hash_tag

LUA = files("delayq").joinpath("streams", "lua")
NAMES = [name.removeprefix("streams/") for name in names("streams")]
READING = {"counts", "find", "get", "look", "page"}
TYPES = dict(
    re.findall(
        r'^    (\w+): str\n    """(\w+): ', inspect.getsource(StreamKeys) + inspect.getsource(Keys), re.MULTILINE
    )
)
TEXTS = {**read_all(""), **read_all("streams")}
BUILT_IN = {"ipairs", "unpack", "tonumber", "select", "type", "function"}


def source(name):
    return TEXTS[f"{name}.lua"]


def body(name):
    return "\n".join(re.sub(r"(^|\s)--.*", "", line) for line in source(name).splitlines())


def header(name):
    lines = [line.removeprefix("--").strip() for line in re.match(r"(?:--.*\n)+", source(name))[0].splitlines()]
    _, *rest = re.split(r"\s*\b(KEYS|ARGV|Returns|Re-run|Uses): ", " ".join(lines))
    return dict(zip(rest[::2], rest[1::2], strict=True))


def test_every_file_is_a_script_that_is_preloaded():
    assert sorted(path.name for path in LUA.iterdir() if path.is_file()) == [f"{name}.lua" for name in NAMES]


@pytest.mark.table("name", NAMES)
def test_the_keys_of_a_header_match_types_and_body(name):
    declared = [entry.split() for entry in header(name)["KEYS"].split(", ")]
    known = {part.name for part in fields(StreamKeys)} if name != "relay" else {*Keys.__dataclass_fields__, "stream"}
    assert {part for part, _ in declared} <= known
    if name != "relay":  # its keys have the types of a delay queue
        types = dict(re.findall(r'^    (\w+): str\n    """(\w+): ', inspect.getsource(StreamKeys), re.MULTILINE))
        assert all(types[part] == kind for part, kind in declared if part != "stream")
    bound = re.search(r"^local ([\w,\s]+?)\s*=\s*(?:unpack\(KEYS\)|KEYS\[1\])", body(name), re.MULTILINE)
    assert bound
    assert re.split(r",\s+", bound[1]) == [part for part, _ in declared] == list(script(f"streams/{name}").parts)
    assert body(name).count("KEYS") == 1


@pytest.mark.table("name", NAMES)
def test_the_arguments_of_a_header_match_the_body(name):
    leading, then, _ = re.sub(r" ?\([^()]*\)", "", header(name)["ARGV"]).partition(", then ")
    declared_arguments = leading.split(", ")
    if declared_arguments == ["group"]:
        assert "ARGV[1]" in body(name)
        return
    bound = re.search(r"^local ([\w, ]+) = unpack\(ARGV, 1, (\d+)\)$", body(name), re.MULTILINE)
    assert bound
    assert [{"override": "now"}.get(one, one) for one in bound[1].split(", ")] == declared_arguments
    assert int(bound[2]) == len(declared_arguments)
    starts = set(re.findall(r"for i = (\d+), (?:math\.min\()?#ARGV", body(name)))
    assert starts == ({str(len(declared_arguments) + 1)} if then else set())


@pytest.mark.table("name", NAMES)
def test_a_script_executes_once_or_only_reads(name):
    assert script(f"streams/{name}").executes_once is (name not in READING)
    if name in READING:
        used = set(re.findall(r"redis\.call\('(\w+)'", body(name)))
        assert used <= {"XLEN", "XPENDING", "XRANGE", "XREVRANGE", "EXISTS", "XINFO", "HGET"}
    else:
        begins = r"local past(, .+)? = (answered\(replies, slot, sequence|begun\(meta, done, slot, sequence)\)"
        assert re.search(begins, body(name))


FRAGMENT_FUNCTIONS = {
    function
    for file, text in TEXTS.items()
    if file.startswith("lib/")
    for function in re.findall(r"^local function (\w+)", text, re.MULTILINE)
}


@pytest.mark.table("name", NAMES)
def test_a_script_uses_exactly_the_fragments_of_its_header(name):
    text = script(f"streams/{name}").text.decode()
    assert text.isascii()
    assert len(source(name).splitlines()) <= 100
    named = header(name)["Uses"].split(", ")
    texts = [TEXTS[f"lib/{one}.lua"] for one in named]
    offered = [set(re.findall(r"^local (?:function )?(\w+)", text, re.MULTILINE)) for text in texts]
    for one, offers in zip(texts, offered, strict=True):  # by the script, or by another fragment
        others = "\n".join([body(name), *(text for text in texts if text is not one)])
        assert offers & set(re.findall(r"(?<![.\w'])(\w+)", re.sub(r"--.*", "", others)))
    called = set(re.findall(r"(?<![.\w])(\w+)\(", body(name)))
    assert called - set(re.findall(r"local function (\w+)", body(name))) - BUILT_IN <= set().union(*offered)
    code = re.sub(r"--.*", "", "\n".join(texts))
    handed = {name for names in re.findall(r"function \w*\(([^)]*)\)", code) for name in names.split(", ")}
    needed = set(re.findall(r"(?<![.\w])(\w+)\(", code)) & FRAGMENT_FUNCTIONS - handed
    assert needed <= set().union(*offered), "a fragment needs another one"


@pytest.mark.parametrize(
    "token", [EntryToken("1767225600000-0", 1, False), EntryToken("18446744073709551615-7", 5000, True)]
)
def test_a_token_encodes_entry_and_delivery(token):
    assert EntryToken.of(token.token) == token
    assert token._replace(delivery=token.delivery + 1).token > token.token


@pytest.mark.parametrize(
    ("stream", "beside"),
    [
        ("tasks", "{tasks}.dead"),
        ("tasks.{eu}", "tasks.{eu}.dead"),
        ("a:{b}:c", "a:{b}:c.dead"),
    ],
)
def test_companion_keys_have_the_hash_tag_of_the_stream(stream, beside):
    keys = StreamKeys.of(stream)
    assert keys.dead == beside
    assert {hash_tag(getattr(keys, part.name)) for part in fields(keys)} == {hash_tag(stream)}


def dumped(client):
    """All stored data, except replies and times of slots, and idle times."""
    return {key: client.dump(key) for key in client.scan_iter() if not key.endswith(b".replies")}


ACTS = {
    "send": lambda tasks, _: tasks.send("x", id="new"),
    "claim": lambda tasks, _: tasks.lease(),
    "ack": lambda _, message: message.ack(),
    "nack": lambda _, message: message.nack(),
    "reject": lambda _, message: message.reject("no"),
    "redrive": lambda tasks, _: tasks.executor.call(tasks._calls.redrive(["1-1"], retries=None)),
    "dead_purge": lambda tasks, _: tasks.executor.call(tasks._calls.dead_purge(["1-1"])),
    "prune": lambda tasks, _: tasks.executor.call(tasks._calls.collect(tasks.settings)),
}


@pytest.mark.parametrize(
    ("name", "part"), [(name, part) for name in ACTS for part in script(f"streams/{name}").parts if part != "stream"]
)
def test_a_key_of_another_type_fails_before_the_first_write(redis_url, redis_client, name, part):
    with StreamQueue("tasks", url=redis_url) as tasks:
        tasks.send_many([NewMessage("a", id="one"), NewMessage("b", id="two")])
        (message,) = tasks.lease()
        key = getattr(tasks._calls.keys, part)
        redis_client.delete(key)
        redis_client.set(key, "text")
        before = dumped(redis_client)
        with pytest.raises(ServerError, match="WRONGTYPE"):
            ACTS[name](tasks, message)
        assert dumped(redis_client) == before


STORED = {"delays": ["of it"], "errors": ["of it"], "meta": ["cursor workers", "rest workers", "pruned", "slot_cursor"]}
FOREIGN = ["", "x", "-1", "1.5", "inf", "nan", "9" * 15, "9" * 30, "9" * 400, b"\xff", "x-1", "9" * 20 + "-0", "0 0"]


@pytest.mark.parametrize(("part", "field"), [(part, field) for part in STORED for field in STORED[part]])
def test_a_foreign_value_stops_no_script_and_keeps_no_message(redis_url, redis_client, part, field):
    with StreamQueue("tasks", url=redis_url) as tasks:
        for value in FOREIGN:
            redis_client.flushall()
            tasks.lease()  # makes the group
            entry = redis_client.xadd("tasks", {"payload": "1"}).decode()
            assert tasks.lease().messages
            redis_client.xclaim("tasks", "workers", "lost", 0, [entry], idle=10**9)  # its lease has expired
            redis_client.hset(f"{{tasks}}.{part}", entry if field == "of it" else field, value)
            assert tasks.counts().living == 1
            assert tasks.list("active").messages
            assert tasks.get(entry)
            (message,) = tasks.lease().messages
            assert ACTS["prune"](tasks, message)
            assert message.ack()


def test_a_death_is_logged_with_its_worker_however_many_are_pending(redis_url, redis_client, caplog):
    with StreamQueue("tasks", url=redis_url, default_retries=0) as tasks:
        tasks.lease()  # makes the group
        pipeline = redis_client.pipeline(transaction=False)
        for n in range(10_001):
            pipeline.xadd("tasks", {"payload": "1"}, id=f"{n + 1}-0")
        pipeline.execute()
        redis_client.xreadgroup("workers", "lost", {"tasks": ">"}, count=10_001)
        redis_client.xclaim("tasks", "workers", "lost", 0, ["1-0"], idle=10**9)
        assert not tasks.lease().messages
    (line,) = [one for one in caplog.records if "its lease expired" in one.getMessage()]
    assert (line.levelname, line.id, line.consumer) == ("ERROR", "1-0", "lost")
    assert line.getMessage().endswith("it goes to the dead letter: its lease expired, as worker lost was lost")


def test_a_message_stays_in_the_stream_if_the_dead_letter_refuses_it(redis_url, redis_client):
    redis_client.xadd("{tasks}.dead", {"the": "last"}, id=f"{2**64 - 1}-{2**64 - 1}")
    with StreamQueue("tasks", url=redis_url) as tasks:
        tasks.send("x", 0, id="one")
        (message,) = tasks.lease()
        for settle in (lambda: message.reject("no"), message.nack):
            with pytest.raises(ServerError, match="exhausted the last possible ID"):
                settle()
        assert redis_client.smembers("{tasks}.ids") == {b"one"}
        assert message.ack()


def test_a_full_redis_refuses_sends_but_can_be_drained(start_redis):
    server = start_redis("--maxmemory-policy", "noeviction")
    with server.client() as client, StreamQueue("tasks", url=server.url, lease="1s") as tasks:
        tasks.send_many([NewMessage("x" * 100, id=f"id{n}") for n in range(200)])
        with DelayQueue("reminders", url=server.url) as queue:
            queue.send_many(["y"] * 50)
            client.config_set("maxmemory", 1)
            with pytest.raises(QueueFullError):
                tasks.send("z")
            assert Relay(queue, tasks).run(burst=True) == 50
        tasks.callback(lambda _: None)
        tasks.run(burst=True)
        assert tasks.counts().living == 0
        client.config_set("maxmemory", 0)
        assert tasks.send("z").new


def test_unused_call_slots_and_consumers_are_deleted(redis_url, redis_client):
    with StreamQueue("tasks", url=redis_url) as tasks:
        tasks.send_many(["a", "b"], 0)
        for message in tasks.lease(n=2):
            message.reject("no")
        redis_client.xgroup_createconsumer("tasks", "workers", "gone")
        assert len(redis_client.xinfo_consumers("tasks", "workers")) == 2
        assert redis_client.hlen("{tasks}.replies") > 0
        calls: StreamCalls = tasks._calls
        redis_client.xgroup_createconsumer("tasks", "workers", "retry")
        executor = tasks.executor
        request = calls.collect(read_settings({"dead_max": 10, "dead_ttl": 0}), slot_ttl=1)
        trimmed = 0
        while len(redis_client.xinfo_consumers("tasks", "workers")) > 1 or tasks.counts().dead:
            trimmed += executor.call(request).trimmed
        assert trimmed == 2
        assert redis_client.xinfo_consumers("tasks", "workers")[0]["name"] == b"retry"


def test_leases_prune_once_a_minute(redis_url, redis_client):
    with StreamQueue("tasks", url=redis_url) as tasks:

        def left():
            redis_client.delete("{tasks}.dead")
            redis_client.xadd("{tasks}.dead", {"of": "1970"}, id="1-1")
            tasks.lease()
            return redis_client.xlen("{tasks}.dead")

        tasks.lease()
        tasks.lease()
        assert left() == 1
        redis_client.hincrby("{tasks}.meta", "pruned", -61_000)
        assert left() == 0


@pytest.mark.parametrize("loss", [lambda db: db.xtrim("tasks", maxlen=0), lambda db: db.delete("tasks")])
def test_ids_of_messages_that_others_delete_are_freed(redis_url, redis_client, loss):
    with StreamQueue("tasks", url=redis_url) as tasks:
        tasks.send_many([NewMessage("x", id="one"), NewMessage("y", id="two"), NewMessage("z", id="three")])
        dead, (held,) = tasks.lease().messages[0], tasks.lease().messages
        dead.reject("no")
        assert held.nack(delay="1h", error="no")
        loss(redis_client)
        assert tasks.send("again", id="three").new
        assert not tasks.send("once more", id="three").new
        loss(redis_client)
        assert tasks.dead.redrive(all=True).redriven == 1
        with tasks.lease() as message:
            assert message.id == "one"
        redis_client.hdel("{tasks}.meta", "pruned")
        tasks.lease()
        assert set(redis_client.keys()) <= {b"tasks", b"{tasks}.dead", b"{tasks}.meta", b"{tasks}.replies"}


def test_a_stream_deleted_under_a_consumer_is_created_again(redis_url, redis_client):
    seen = []
    with StreamQueue("tasks", url=redis_url, tick="100ms") as tasks:
        tasks.callback(lambda message: seen.append(message.payload))
        tasks.send("before")
        tasks.run(burst=True)
        redis_client.flushall()
        tasks.send("after")
        tasks.run(burst=True)
        (lost,) = [tasks.send("x") and tasks.lease().messages[0]]
        redis_client.flushall()
        assert not lost.ack()
        assert not lost.nack()
        assert not lost.extend()
    assert seen == ["before", "after"]
