"""The rights that the dashboard needs at Redis: those of an inspector to look, and of an admin to act."""

from __future__ import annotations

import re
from contextlib import ExitStack, contextmanager

import pytest
import redis

from delayq import State
from delayq.cli.admin.acl import Role, rules
from tests.support.visitor import text_of

PATHS = [
    "/",
    "/queue?queue=orders",
    *(f"/messages?queue=orders&state={state}" for state in State if state not in ("garbage", "dead")),
    "/message?queue=orders&id=waits",
    "/message?queue=orders&id=spent",
    "/dead?queue=orders",
    "/search?queue=orders&text=paid",
    "/workers?queue=orders",
    "/schedules?queue=orders",
    "/forecast?queue=orders",
    "/limits?queue=orders",
]


@pytest.fixture
def as_role(redis_url, redis_client, visit):
    """`as_role(role, …)` visits a dashboard that logs in to Redis with this role."""
    with ExitStack() as stack:

        @contextmanager
        def user(role):
            redis_client.execute_command("ACL", "SETUSER", "eye", "on", ">secret", *rules([role]))
            try:
                with redis.Redis.from_url(redis_url, username="eye", password="secret") as client:
                    yield client
            finally:
                redis_client.execute_command("ACL", "DELUSER", "eye")

        yield lambda role: visit(url=None, redis=stack.enter_context(user(role)), write=True)


@pytest.mark.long
def test_inspector_may_look_at_every_page(full, as_role):
    full.preload()
    full.schedules.add("daily", every="1d", payload=1)
    full.limits.set("mail", running=2)
    visitor = as_role(Role.INSPECTOR)
    for path in PATHS:
        page = visitor.get(path)
        assert page.status_code == 200, text_of(page)
    refused = visitor.submit("/message?queue=orders&id=waits", "/do/kill", queue="orders", id="waits")
    assert refused.status_code == 502
    assert re.search("permission|NOPERM", text_of(refused))
    assert full.get("waits").state is State.PENDING


def test_admin_may_act(full, as_role):
    full.preload()
    visitor = as_role(Role.ADMIN)
    page = "/message?queue=orders&id=waits"
    assert "waits: killed" in text_of(visitor.submit(page, "/do/kill", queue="orders", id="waits"))
    assert "Sent 3 messages" in text_of(visitor.submit("/dead?queue=orders", "/do/redrive", queue="orders", all="yes"))
    assert "Paused" in text_of(visitor.submit("/queue?queue=orders", "/do/pause", queue="orders"))
    limited = visitor.submit("/limits?queue=orders", "/do/limit", queue="orders", name="mail", running="2")
    assert "Limited" in text_of(limited)
