"""The plugin as users meet it: found by pytest itself, in a run of their own."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from importlib import import_module

import pytest

import delayq

RUN = ("-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:cov", "-p", "no:hypothesispytest")
"""What a user may not have, left out: the run is of pytest, anyio and delayq."""


@pytest.fixture(scope="module", autouse=True)
def imported():
    """What a run in this process is the first to import, is forgotten after it, but not where its package keeps it."""
    for module in pkgutil.walk_packages(delayq.__path__, "delayq."):
        if not module.name.startswith(("delayq.spark.", "delayq.__main__")):
            import_module(module.name)


@pytest.fixture
def run(pytester):
    """`run(text, *arguments)` runs a file of tests in this process and returns the result."""

    def run_tests(text, *arguments):
        pytester.makepyfile(text)
        return pytester.runpytest_inprocess(*RUN, "-Werror", *arguments)

    return run_tests


TESTS = """
    from datetime import timedelta

    import pytest

    from delayq.testing import assert_nothing_scheduled, assert_scheduled, drain


    def test_a_clock(delayq_clock, delayq_queue):
        began = delayq_clock.now
        delayq_queue.callback(lambda message: None)
        delayq_queue.send_delay_msg("x", "3d")
        assert_scheduled(delayq_queue, payload="x", at=began + timedelta(days=3))
        assert [one.payload for one in drain(delayq_queue, until="4d")] == ["x"]
        assert_nothing_scheduled(delayq_queue)
        delayq_clock.advance("1d")
        assert delayq_clock.now - began == timedelta(days=5)


    @pytest.mark.parametrize("n", range(3))
    def test_no_test_sees_another(delayq_queues, n):
        with delayq_queues("mails", default_retries=0) as queue:
            assert queue.counts().living == 0
            queue.send_delay_msg("x")


    @pytest.mark.anyio
    async def test_asyncio(delayq_clock, delayq_async_queue):
        async with delayq_async_queue as queue:
            queue.callback(lambda message: None)
            await queue.send_delay_msg("x", "3d")
            assert len(await drain(queue)) == 1


    @pytest.fixture
    def anyio_backend():
        return "asyncio"
"""


def test_fixtures_are_there_without_being_asked_for(run):
    run(TESTS).assert_outcomes(passed=5)


def test_on_a_real_redis_by_an_option(run, redis_url, redis_client):
    run(TESTS, f"--delayq-url={redis_url}").assert_outcomes(passed=5)
    assert redis_client.keys("*") == []


def test_on_a_real_redis_by_the_settings_of_a_project(run, pytester, redis_url):
    pytester.makeini(f"[pytest]\ndelayq_url = {redis_url}")
    run(f"def test_url(delayq_queues): assert delayq_queues.url == {redis_url!r}").assert_outcomes(passed=1)


def test_on_a_redis_of_its_own(run, redis_server):
    run(TESTS, "--delayq-url=throwaway").assert_outcomes(passed=5)


def test_a_redis_of_its_own_needs_the_program(run, monkeypatch):
    monkeypatch.setenv("PATH", "")
    result = run("def test_it(delayq_queue): pass", "--delayq-url=throwaway")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*--delayq-url throwaway needs a redis-server on PATH*"])


def test_a_failure_shows_the_line_of_the_test_and_what_is_there(run):
    result = run(
        """
        from delayq.testing import assert_scheduled

        def test_it(delayq_queue):
            delayq_queue.send_delay_msg("x", "1h", id="one")
            assert_scheduled(delayq_queue, payload="y")
        """
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            ">*assert_scheduled(delayq_queue, payload=*",
            "E*AssertionError: no message with payload='y' is scheduled. Queue queue has:",
            "E*one  pending  due *'x'",
        ]
    )
    result.stdout.no_fnmatch_line("*def assert_scheduled*")


def test_the_fixtures_are_told_of(pytester):
    result = pytester.runpytest_inprocess(*RUN, "--fixtures")
    for name in ("delayq_clock", "delayq_queue", "delayq_queues", "delayq_async_queue", "delayq_url"):
        result.stdout.re_match_lines([rf"{name}\b.* -- .*plugin\.py"])


def test_a_run_that_asks_for_nothing_loads_nothing(pytester):
    pytester.makepyfile("def test_it(): pass")
    program = f"""
import sys, pytest
assert pytest.main([*{RUN!r}, "-q"]) == 0
loaded = sorted(name for name in sys.modules if name.split(".")[0] in ("delayq", "redis", "fakeredis", "msgspec"))
print("loaded", loaded)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=pytester.path
    )
    loaded = ["delayq", "delayq.lazy", "delayq.testing", "delayq.testing.plugin"]
    assert done.stdout.splitlines()[-1] == f"loaded {loaded}"
