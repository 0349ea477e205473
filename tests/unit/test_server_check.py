"""The start-up check."""

import logging

import pytest

from delayq import UnsafeServerError
from delayq.broker.keys import Keys
from delayq.errors import ServerError
from delayq.queue.server_check import NEW_SCHEMA, Memory, Opening, check, find_dangers, find_troubles, opening

SAFE = {"redis_version": "7.0.15", "maxmemory_policy": "noeviction", "aof_enabled": "1"}
INFO = b"# Server\r\nredis_version:7.0.15\r\n\r\n# Memory\r\nmaxmemory_policy:noeviction\r\n\r\naof_enabled:1\r\n"


def replies(info=INFO, schema=b"1"):
    return Opening(info, 0, schema, 0, 0, b"identity")


def test_safe_server_has_no_dangers():
    assert find_dangers(SAFE) == []


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-random", "volatile-lru", "volatile-ttl"])
def test_an_evicting_server_is_a_danger(policy):
    (danger,) = find_dangers(SAFE | {"maxmemory_policy": policy})
    assert policy in danger
    assert "noeviction" in danger


def test_a_server_without_an_append_only_file_is_a_danger():
    (danger,) = find_dangers(SAFE | {"aof_enabled": "0"})
    assert "append-only" in danger


@pytest.mark.table(
    ("version", "old"),
    [
        ("2.8.24", True),
        ("5.0.14", True),
        ("6.0.16", True),
        ("6.1.240", True),
        ("6.2.0", False),
        ("6.2.14", False),
        ("7.0.15", False),
        ("10.0.0", False),
        ("8.0-rc1", False),
        ("255.255.255", False),
        ("", False),
        ("unstable", False),
    ],
)
def test_a_server_older_than_6_2_is_a_danger(version, old):
    assert bool(find_dangers(SAFE | {"redis_version": version})) is old


def test_missing_server_information_is_no_danger():
    assert find_dangers({}) == []


def test_every_danger_is_reported():
    assert len(find_dangers({"redis_version": "5.0", "maxmemory_policy": "allkeys-lru", "aof_enabled": "0"})) == 3


def test_danger_is_logged_as_a_warning(caplog):
    check("reminders", replies(INFO.replace(b"aof_enabled:1", b"aof_enabled:0")), embedded=False, strict=False)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.queue == "reminders"


def test_a_danger_is_refused_if_strict():
    unsafe = replies(INFO.replace(b"noeviction", b"allkeys-lru"), schema=b"9")
    with pytest.raises(UnsafeServerError, match=r"allkeys-lru.*; queue reminders has schema 9"):
        check("reminders", unsafe, embedded=False, strict=True)


def test_a_safe_server_passes_if_strict(caplog):
    check("reminders", replies(), embedded=False, strict=True)
    assert not caplog.records


@pytest.mark.parametrize("embedded", [False, True])
@pytest.mark.parametrize("strict", [False, True])
def test_a_newer_schema_is_refused_everywhere(embedded, strict):
    with pytest.raises(UnsafeServerError, match="this delayq knows only 8: upgrade delayq"):
        check("reminders", replies(schema=b"9"), embedded=embedded, strict=strict)


def test_embedded_server_may_lack_an_append_only_file():
    check("reminders", replies(INFO.replace(b"aof_enabled:1", b"aof_enabled:0")), embedded=True, strict=True)


@pytest.mark.parametrize("refused", [ServerError("INFO: NOPERM"), None, b"", b"\xff\xfe", b"no colon at all"], ids=repr)
def test_server_without_information_passes(refused):
    check("reminders", replies(refused), embedded=False, strict=True)


@pytest.mark.parametrize("schema", [ServerError("HGET: WRONGTYPE"), None, b"6", b"4", b"3", b"2", b"1", b"0"], ids=repr)
def test_a_schema_that_is_not_newer_passes(schema):
    check("reminders", replies(schema=schema), embedded=False, strict=True)


@pytest.mark.parametrize("schema", [b"", b"two", b"2.0", b"\xff", b"1" * 5000], ids=lambda schema: repr(schema[:5]))
def test_schema_that_is_not_a_number_is_a_danger(schema):
    with pytest.raises(UnsafeServerError, match="schema"):
        check("reminders", replies(schema=schema), embedded=False, strict=True)


def test_opening_stores_the_schema_and_registers_the_queue():
    keys = Keys.of("delayq", "reminders")
    commands = [command.args for command in opening(keys, "delayq", "reminders")]
    assert ("HSETNX", keys.meta, "schema", NEW_SCHEMA) in commands
    assert ("SADD", "delayq:queues", "reminders") in commands


MIB = 1 << 20
TAKES = {
    "role": "master",
    "used_memory": f"{MIB}",
    "maxmemory": "0",
    "aof_last_write_status": "ok",
    "rdb_last_bgsave_status": "ok",
    "connected_clients": "5",
    "maxclients": "10000",
    "cluster_state": "ok",
}
FULL = {"maxmemory": f"{10 * MIB}", "mem_not_counted_for_evict": f"{MIB}"}
SNAPSHOT = {"rdb_last_bgsave_status": "err"}
SAVES = {"save": "3600 1", "stop-writes-on-bgsave-error": "yes"}
REPLICA = {"role": "slave", "master_host": "a", "master_port": "6379", "slave_read_only": "1"}


@pytest.mark.parametrize(
    ("info", "settings", "said", "refuses"),
    [
        (FULL | {"used_memory": f"{11 * MIB + 1}"}, {}, "full (used 10.0 MiB of maxmemory 10.0 MiB): sends are", True),
        (FULL | {"used_memory": f"{11 * MIB}"}, {}, "nearly full", False),
        (FULL | {"used_memory": f"{10 * MIB}"}, {}, "90%", False),
        (FULL | {"used_memory": f"{10 * MIB - 1}"}, {}, None, False),
        (FULL | {"used_memory": f"{99 * MIB}", "maxmemory_policy": "allkeys-lru"}, {}, None, False),
        ({"used_memory": f"{99 * MIB}", "maxmemory": "0"}, {}, None, False),
        (SNAPSHOT, SAVES, "until one succeeds", True),
        (SNAPSHOT, {}, "unless stop-writes-on-bgsave-error is off", True),
        (SNAPSHOT, SAVES | {"stop-writes-on-bgsave-error": "no"}, "are accepted", False),
        (SNAPSHOT, SAVES | {"save": ""}, None, False),
        ({"aof_enabled": "1", "aof_last_write_status": "err"}, {}, "append-only file", True),
        ({"aof_enabled": "0", "aof_last_write_status": "err"}, {}, None, False),
        (REPLICA, {}, "replica of a:6379", True),
        (REPLICA | {"slave_read_only": "0"}, {}, None, False),
        ({"min_slaves_good_slaves": "1"}, {"min-replicas-to-write": "2"}, "asks for 2", True),
        ({"min_slaves_good_slaves": "2"}, {"min-replicas-to-write": "2"}, None, False),
        ({"min_slaves_good_slaves": "0"}, {}, "asks for 1", True),
        ({"connected_clients": "9000"}, {}, "9,000 clients", False),
        ({"connected_clients": "8999"}, {}, None, False),
        ({"cluster_state": "fail"}, {}, "cluster is down", True),
        ({}, {}, None, False),
    ],
)
def test_a_server_that_refuses_writes_or_soon_may_is_in_trouble(info, settings, said, refuses):
    found = find_troubles(TAKES | info, settings)
    assert [trouble.refuses for trouble in found] == ([] if said is None else [refuses])
    assert said is None or said in found[0].text


def test_what_is_not_known_of_a_server_is_no_trouble():
    assert find_troubles({}, {}) == []
    assert Memory.of({}) is None
