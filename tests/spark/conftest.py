"""One Spark session for all tests marked `spark`, a Spark Connect server, and a browser."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from delayq import DelayQueue
from delayq.cli import main
from delayq.spark import session
from delayq.spark.session import use_java, use_this_python
from tests.support.browsers import chromium
from tests.support.processes import Process
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Browser
    from pyspark.sql import SparkSession

COVERAGE = "COVERAGE_PROCESS_CONFIG"
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Faster start; tests are too short to benefit from better compiled code."""
BY_EXPRESSION = {"spark.sql.codegen.wholeStage": "false"}
"""Less Java is compiled for each query of a few rows. Sessions of their own, such as those of `test_ways_in.py` and of
Spark Connect, have the default."""

ON_SPARK = {f"DELAYQ_{command}_ENGINE": "spark" for command in ("SPARK_PLAN", "SPARK_LOAD")}
"""The environment in which small tables are planned and loaded on Spark too."""

INTERRUPTED = pytest.StashKey[bool]()


@pytest.hookimpl(tryfirst=True)  # before pytest's own hook, which reads the markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that use Spark, and allow time for a JVM to start while the other half of CI uses both cores."""
    for item in items:
        if {"spark", "connect_url"} & set(getattr(item, "fixturenames", ())):
            item.add_marker("spark")
        if item.get_closest_marker("spark") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(400))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Kill the JVM if the test was interrupted during a call to it, for example by a time-out.

    The reply to that call is still to come: the next call would take it for its own, and so on.
    """
    if call.excinfo is not None and was_interrupted_in_py4j(call.excinfo):
        kill_jvm()
        item.stash[INTERRUPTED] = True
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """After such a test discard the session, so that the next test gets a new one."""
    try:
        return (yield)
    finally:
        if item.stash.get(INTERRUPTED, False):
            (definition,) = item._fixtureinfo.name2fixturedefs["spark"]
            definition.finish(item._request)


def was_interrupted_in_py4j(error: pytest.ExceptionInfo[BaseException]) -> bool:
    """Return whether a time-out or Ctrl-C came during a call to the JVM; error replies of the JVM are harmless."""
    return not isinstance(error.value, Exception) and any("py4j" in Path(one.path).parts for one in error.traceback)


def kill_jvm() -> None:
    """Kill the JVM of this process, and reset PySpark."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    process = SparkContext._gateway.proc
    process.kill()
    process.wait()
    process.stdin.close()
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session shared by all tests: two tasks at a time, two shuffle partitions, files in a temporary folder."""
    from pyspark.sql import SparkSession

    folder = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch:
        # Spark ends its Python workers with signals, so their coverage would be lost.
        patch.delenv(COVERAGE, raising=False)
        patch.delenv("SPARK_REMOTE", raising=False)
        spark = session(
            "delayq tests",
            master="local[2]",
            **{
                "spark.sql.shuffle.partitions": 2,
                "spark.driver.memory": "1g",
                **BY_EXPRESSION,
                "spark.driver.extraJavaOptions": JAVA_OPTIONS,
                "spark.sql.warehouse.dir": str(folder / "warehouse"),
                "spark.sql.streaming.checkpointLocation": str(folder / "checkpoints"),
                "spark.local.dir": str(folder / "local"),
            },
        )
    yield spark
    if SparkSession.getActiveSession() is not None:  # else its JVM was killed
        spark.stop()


@pytest.fixture(scope="session")
def connect_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Spark Connect server. Its client must be another process: one cannot have sessions of both kinds."""
    import pyspark

    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    environ = {name: value for name, value in os.environ.items() if name != COVERAGE}
    use_java(environ)
    use_this_python(environ)
    settings = {
        "spark.connect.grpc.binding.port": port,
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "localhost",
        "spark.driver.extraJavaOptions": JAVA_OPTIONS,
        "spark.sql.shuffle.partitions": 2,
        "spark.ui.enabled": "false",
    }
    server = [Path(pyspark.__file__).parent / "bin" / "spark-submit", "--master", "local[2]"]
    for name, value in settings.items():
        server += ["--conf", f"{name}={value}"]
    server += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    folder = tmp_path_factory.mktemp("connect")
    with (
        (folder / "log").open("wb") as log,
        Process(server, env=environ, cwd=folder, stderr=log, lasting=True) as process,
    ):
        try:
            wait_until(lambda: process.poll() is not None or is_open(port), timeout=60)
            assert process.poll() is None, (folder / "log").read_text()
            yield f"sc://127.0.0.1:{port}"
        finally:
            process.terminate()


def is_open(port: int) -> bool:
    """Return whether the port accepts connections."""
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(autouse=True)
def no_coverage_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not measure the coverage of processes that a test starts: their coverage would be lost."""
    monkeypatch.delenv(COVERAGE, raising=False)


@pytest.fixture
def browser() -> Iterator[Browser]:
    """A Chromium: Playwright's own, else one on PATH.

    Each test has its own, because an open one runs an event loop in this thread and no other could be started.
    """
    with chromium() as browser:
        yield browser


@pytest.fixture
def cli(redis_url, tmp_path, monkeypatch):
    """Runs a command in this process, plans and loads on Spark unless the test says otherwise.

    `@name` is a file in the test's folder: the JVM has another working directory.
    """
    monkeypatch.chdir(tmp_path)

    def run(*words):
        arguments = [re.sub("^@", f"{tmp_path}/", one) for one in words]
        environment = {"DELAYQ_URL": redis_url, "COLUMNS": None} | ON_SPARK
        ended = CliRunner().invoke(main, arguments, env=environment, prog_name="delayq")
        assert isinstance(ended.exception, SystemExit | None), ended.exc_info
        return ended

    return run


@pytest.fixture
def visits(redis_url):
    with DelayQueue("visits", url=redis_url, events=True) as queue:
        queue.open()
        yield queue
