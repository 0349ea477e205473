"""The plugin as users see it: found by pytest, in a separate run."""

from __future__ import annotations

import pkgutil
import sys
from importlib import import_module

import pytest

import delayq
from tests.support import processes

RUN = ("-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:cov", "-p", "no:hypothesispytest")
"""Without plugins that a user may not have: only pytest, anyio and delayq."""


@pytest.fixture(scope="module", autouse=True)
def imported():
    """Import all modules first: an in-process run unloads modules that it imports, but not from their packages."""
    for module in pkgutil.walk_packages(delayq.__path__, "delayq."):
        if not module.name.startswith(("delayq.spark.", "delayq.django.", "delayq.__main__")):
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


    def test_clock(delayq_clock, delayq_queue):
        began = delayq_clock.now
        delayq_queue.callback(lambda message: None)
        delayq_queue.send_delay_msg("x", "3d")
        assert_scheduled(delayq_queue, payload="x", at=began + timedelta(days=3))
        assert [one.payload for one in drain(delayq_queue, until="4d")] == ["x"]
        assert_nothing_scheduled(delayq_queue)
        delayq_clock.advance("1d")
        assert delayq_clock.now - began == timedelta(days=5)


    @pytest.mark.parametrize("n", range(3))
    def test_tests_are_isolated(delayq_queues, n):
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


def test_fixtures_are_available_without_configuration(run):
    run(TESTS).assert_outcomes(passed=5)


def test_option_selects_a_real_redis(run, redis_url, redis_client):
    run(TESTS, f"--delayq-url={redis_url}").assert_outcomes(passed=5)
    assert redis_client.keys("*") == []


def test_ini_setting_selects_a_real_redis(run, pytester, redis_url):
    pytester.makeini(f"[pytest]\ndelayq_url = {redis_url}")
    run(f"def test_url(delayq_queues): assert delayq_queues.url == {redis_url!r}").assert_outcomes(passed=1)


def test_throwaway_redis(run, redis_server):
    run(TESTS, "--delayq-url=throwaway").assert_outcomes(passed=5)


def test_throwaway_redis_needs_redis_server(run, monkeypatch):
    monkeypatch.setenv("PATH", "")
    result = run("def test_it(delayq_queue): pass", "--delayq-url=throwaway")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*--delayq-url throwaway needs a redis-server on PATH*"])


def test_failure_shows_the_line_of_the_test_and_the_messages(run):
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


def test_fixtures_are_listed(pytester):
    result = pytester.runpytest_inprocess(*RUN, "--fixtures")
    for name in ("delayq_clock", "delayq_queue", "delayq_queues", "delayq_async_queue", "delayq_url"):
        result.stdout.re_match_lines([rf"{name}\b.* -- .*plugin\.py"])


@pytest.mark.long
def test_run_without_fixtures_loads_nothing(pytester):
    pytester.makepyfile("def test_it(): pass")
    program = f"""
import sys, pytest
assert pytest.main([*{RUN!r}, "-q"]) == 0
loaded = sorted(name for name in sys.modules if name.split(".")[0] in ("delayq", "redis", "fakeredis", "msgspec"))
print("loaded", loaded)
"""
    done = processes.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=pytester.path)
    loaded = ["delayq", "delayq._lazy", "delayq.testing", "delayq.testing.pytest_plugin"]
    assert done.stdout.splitlines()[-1] == f"loaded {loaded}"
