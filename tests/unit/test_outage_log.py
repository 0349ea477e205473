"""What is logged while Redis does not answer, and how the server is named."""

from __future__ import annotations

import logging

import pytest
import redis

from delayq.broker.transport import failures
from delayq.broker.transport.clients import describe_server, find_client
from delayq.broker.transport.failures import OutageLog
from delayq.options import read_settings

ERROR = ConnectionError("refused")


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(failures, "monotonic", lambda: now[0])
    return now


def test_call_with_a_deadline_warns_at_once_and_every_ten_seconds(caplog, clock):
    log = OutageLog("localhost:6379 (default)")
    for second in range(30):
        clock[0] = second
        log.retrying(ERROR, 30.0, at=log.at, first=second == 0, lost=False)
    text = "Redis does not answer at localhost:6379 (default), retrying for up to {}: refused"
    assert caplog.messages == [text.format(left) for left in ("30s", "20s", "10s")]
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


def test_call_without_a_deadline_warns_once(caplog, clock):
    log = OutageLog("")
    for second in range(30):
        clock[0] = second
        log.retrying(ERROR, None, at=log.at, first=second == 0, lost=True)
    assert caplog.messages == ["Redis does not answer, retrying: refused"]


def test_one_lost_connection_is_no_warning_and_two_are(caplog, clock):
    log = OutageLog("")
    log.retrying(ERROR, 0.9, at=log.at, first=True, lost=False)  # its error comes soon
    log.retrying(ERROR, 30.0, at=log.at, first=True, lost=True)
    assert caplog.messages == []
    log.retrying(ERROR, 30.0, at=log.at, first=False, lost=True)
    assert len(caplog.messages) == 1


@pytest.mark.parametrize(
    ("options", "env", "name"),
    [
        ({}, None, "localhost:6379 (default)"),
        ({}, "redis://:secret@there:7000/2", "there:7000 (from DELAYQ_URL)"),
        ({"url": "redis://user:secret@here"}, "redis://there", "here:6379 (from the option url)"),
        ({"url": "redis://there"}, "redis://there", "there:6379 (from DELAYQ_URL)"),  # as the command line passes it
        ({"url": "unix:///run/redis.sock"}, None, "/run/redis.sock (from the option url)"),
        ({"url": "redis+cluster://a:1,b"}, None, "a:1, b:6379 (from the option url)"),
        ({"url": "redis+sentinel://a:1,b?master=m"}, None, "the Sentinels a:1, b:26379 (from the option url)"),
        ({"redis": redis.Redis("mine", 7)}, "redis://there", "mine:7"),
    ],
)
def test_server_is_named_with_its_address_and_where_that_is_from(monkeypatch, options, env, name):
    if env:
        monkeypatch.setenv("DELAYQ_URL", env)
    client, _ = find_client(options, read_settings(options), awaits=False)
    assert describe_server(client, options) == name
