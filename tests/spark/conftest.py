"""One Spark session for all tests marked `spark`, a Spark Connect server, and a browser to look at pages with."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from delayq.spark import session
from delayq.spark.java import use_java, use_this_python
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Browser
    from pyspark.sql import SparkSession

COVERAGE = "COVERAGE_PROCESS_CONFIG"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Start sooner; a test does not live to see what the JVM would compile better."""


@pytest.hookimpl(tryfirst=True)  # markers are looked at by pytest's own hook of this name
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what takes the session, and give it the time that a JVM takes to start."""
    for item in items:
        if {"spark", "connect_url"} & set(getattr(item, "fixturenames", ())):
            item.add_marker("spark")
        if item.get_closest_marker("spark") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(180))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session shared by all tests: two tasks at a time, two shuffle partitions, files in a folder of its own."""
    folder = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch:
        # Spark ends its Python workers by signals, which leaves nothing to measure them by.
        patch.delenv(COVERAGE, raising=False)
        patch.delenv("SPARK_REMOTE", raising=False)
        spark = session(
            "delayq tests",
            master="local[2]",
            **{
                "spark.sql.shuffle.partitions": 2,
                "spark.driver.memory": "1g",
                "spark.driver.extraJavaOptions": JAVA_OPTIONS,
                "spark.sql.warehouse.dir": str(folder / "warehouse"),
                "spark.sql.streaming.checkpointLocation": str(folder / "checkpoints"),
                "spark.local.dir": str(folder / "local"),
            },
        )
    yield spark
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
    with (folder / "log").open("wb") as log, subprocess.Popen(server, env=environ, cwd=folder, stderr=log) as process:
        try:
            wait_until(lambda: process.poll() is not None or is_open(port), timeout=60)
            assert process.poll() is None, (folder / "log").read_text()
            yield f"sc://127.0.0.1:{port}"
        finally:
            process.terminate()


def is_open(port: int) -> bool:
    """Say whether somebody listens there."""
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(autouse=True)
def no_coverage_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what a test of Spark starts from being measured, for the same reason."""
    monkeypatch.delenv(COVERAGE, raising=False)


@pytest.fixture
def browser() -> Iterator[Browser]:
    """A Chromium: the one that Playwright has downloaded, else one on PATH.

    For one test each: as long as it is open, an event loop runs in this thread, and nothing else could start one.
    """
    from playwright.sync_api import Error, sync_playwright

    with sync_playwright() as playwright:
        for program in [None, *filter(None, map(shutil.which, BROWSERS))]:
            try:
                browser = playwright.chromium.launch(executable_path=program, chromium_sandbox=False)
            except Error as error:
                refused = str(error).strip().splitlines()[0]
                continue
            with browser:
                yield browser
            return
        pytest.skip(f"no Chromium to look at the page with (scripts/ensure-browser installs one): {refused}")
