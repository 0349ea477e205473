"""Access rights: a producer may import, an inspector may read; and which modules are loaded."""

from __future__ import annotations

import sys
from datetime import timedelta

import pytest
import redis

from delayq import DelayQueue, ServerError
from delayq.cli.admin.acl import Role, rules
from delayq.reminders import Calendar, Event, calendars
from tests.reminders.conftest import NOW
from tests.support.processes import run


@pytest.fixture
def user(start_redis):
    """`user(role)` returns the URL of a user with the rights of a role; all scripts are loaded."""
    server = start_redis(tcp=True)
    with redis.Redis.from_url(server.url) as admin:
        port = admin.connection_pool.connection_kwargs["port"]

        def make(role: Role) -> str:
            acl_rules = rules([role], prefix="delayq", queue="reminders")
            admin.execute_command("ACL", "SETUSER", role, "on", ">secret", *acl_rules)
            return f"redis://{role}:secret@127.0.0.1:{port}/0"

        with DelayQueue("reminders", url=server.url) as queue:
            queue.preload()
        yield make


def test_producer_imports_and_inspector_reads(user):
    event = Event("a", NOW + timedelta(days=20_000))
    with DelayQueue("reminders", url=user(Role.PRODUCER)) as queue:
        calendar = Calendar(queue, "team", "1h")
        assert len(calendar.preview([event]).new) == 1
        assert len(calendar.update([event]).new) == 1
        assert calendar.replan().unchanged == 1
    with DelayQueue("reminders", url=user(Role.INSPECTOR)) as queue:
        assert [info.name for info in calendars(queue)] == ["team"]
        calendar = Calendar(queue, "team", "1h")
        assert calendar.preview([event]).unchanged == 1
        assert [one.id for one in calendar.info().reminders] == ["team/a//1h"]
        with pytest.raises(ServerError):
            calendar.update([])
    with DelayQueue("reminders", url=user(Role.PRODUCER)) as queue:
        assert len(Calendar(queue, "team").forget().cancelled) == 1


def test_planning_imports_neither_a_parser_nor_redis():
    heavy = ["icalendar", "recurring_ical_events", "dateutil", "redis", "click", "rich"]
    program = f"""
import sys
from delayq.reminders import Calendar, Event, Rules, plan, read_calendar
print([name for name in {heavy} if name in sys.modules])
"""
    assert run([sys.executable, "-c", program], check=True, capture_output=True).stdout == b"[]\n"
