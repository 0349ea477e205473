"""The rights that the handbook names are enough, and all of them are needed."""

from __future__ import annotations

import shlex
from importlib.resources import files

import pytest
import redis

from delayq.workqueue import Item, WorkQueue
from tests.workqueue.test_scripts import TEXTS


@pytest.fixture
def rule():
    """The words of the rule in the page."""
    page = files("delayq").joinpath("docs", "workqueue.md").read_text()
    return shlex.split(page.partition("```text\n")[2].partition("```")[0])


def test_the_rights_of_the_handbook_suffice(start_redis, rule):
    server = start_redis(tcp=True)
    with server.client() as admin:
        admin.execute_command(*rule)
        with redis.Redis(port=server.port, username="thumbnails", password="secret") as db:
            jobs = WorkQueue("thumbnails")
            assert jobs.add_item(db, Item("x", id="a"))
            jobs.add_unique_item(db, Item("x", id="b"))
            assert jobs.lease(db, 60, timeout=1).id() == "a"
            assert jobs.lease(db, 60, timeout=1).id() == "b"
            assert jobs.lease(db, 60, timeout=0.01) is None
            admin.set("thumbnails:item:orphan", "x")
            admin.delete("thumbnails:lease:a")
            admin.lpush("thumbnails:queue", "b")
            assert jobs.deep_clean(db) == 2
            assert jobs.light_clean(db, grace=0) == 0
            assert jobs.counts(db) == (3, 1)
            assert jobs.get_item_data(db, "a") == b"x"
            assert all(jobs.complete(db, Item("", id=id)) for id in ("a", "b", "orphan"))
            with pytest.raises(redis.exceptions.NoPermissionError):
                WorkQueue("others").queue_len(db)


def test_no_more_rights_are_named_than_are_used(rule):
    named = {word[1:] for word in rule if word.startswith("+")}
    scripts = " ".join(TEXTS.values())
    calls = files("delayq.workqueue").joinpath("calls.py").read_text()
    used = {name for name in named if f"redis.call('{name.upper()}'" in scripts or f'"{name.upper()}"' in calls}
    assert used == named
