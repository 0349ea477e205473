"""The Spark session that the pipelines run in: the one there is, a local one, a cluster's or a Connect server's."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from delayq.errors import ConfigurationError, shown
from delayq.spark.java import use_java, use_this_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[*]"
"""The master where none is named: this machine, a task for each core."""

_MASTER = re.compile(r"local(\[[\d*]+(, *[\d*]+)?\]|-cluster\[.+\])?|yarn|(spark|k8s|sc)://.+")

Setting = bool | float | str | None
"""A value of a setting of Spark."""
Settings = dict[str, Setting]

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_QUIET = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"
_OURS: Settings = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}
_DRIVERS: Settings = {"spark.ui.showConsoleProgress": "false"}
_LOCAL: Settings = {
    "spark.ui.enabled": "false",
    # The machine's own name may stand for an address that it does not have (behind a VPN, on a train).
    "spark.driver.host": "localhost",
    "spark.driver.bindAddress": "127.0.0.1",
}
_SUBMITTED = ("PYSPARK_GATEWAY_PORT", "SPARK_REMOTE")  # set where a master was chosen already: by `spark-submit`, …
_CONNECT_PATIENCE = 20.0  # seconds to reach a server; PySpark by itself tries for ten minutes


def session(app: str = "delayq", *, master: str | None = None, **conf: Setting) -> SparkSession:
    """Return the Spark session to work in, and make one if there is none.

    An active session is used as it is, whatever the arguments say. Else one is made on `master`: `local[*]` by default,
    the URL of a cluster, or `sc://host:port` of a Spark Connect server; under `spark-submit`, what that was told. Its
    time zone is UTC. A local one has no web page, keeps silent and needs no set-up: see `delayq.spark.java`.

    `conf` are settings of Spark, which go before these: `session(**{"spark.driver.memory": "4g"})`.

    Raises `ConfigurationError` if Spark or a Java is missing, or if the session does not start.
    """
    if master is not None and not _MASTER.fullmatch(master):
        raise ConfigurationError(
            f"master cannot be {shown(master)}: local[4], spark://host:port, yarn, k8s://… or sc://host:port are known"
        )
    try:
        from pyspark.errors import PySparkRuntimeError
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ConfigurationError("Spark is not installed: `pip install 'delayq[spark]'`") from error
    try:
        return SparkSession.active()
    except PySparkRuntimeError:  # there is none
        pass
    if master is None and not any(name in os.environ for name in _SUBMITTED):
        master = LOCAL
    try:
        if (master or os.environ.get("SPARK_REMOTE", "")).startswith("sc://"):
            return _connected(app, master or os.environ["SPARK_REMOTE"], conf)
        return _started(app, master, conf)
    except ConfigurationError:
        raise
    except Exception as error:  # Spark's own errors, py4j's and gRPC's
        where = f" on {_shown(master)}" if master else ""
        raise ConfigurationError(f"Spark does not start{where}: {_reason(error)}") from error


def _started(app: str, master: str | None, conf: Settings) -> SparkSession:
    """Start a JVM (`spark-submit` has done so before) and a session in it."""
    from pyspark.sql import SparkSession

    settings = _OURS | _DRIVERS
    if master is not None:
        settings["spark.master"] = master
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        use_java()
    if (master or "").startswith("local"):
        use_this_python()
        settings |= _LOCAL
    settings |= conf
    settings[_JAVA_OPTIONS] = f"{_QUIET} {conf.get(_JAVA_OPTIONS, '')}".strip()
    return SparkSession.builder.appName(app).config(map={**settings}).getOrCreate()


def _connected(app: str, url: str, conf: Settings) -> SparkSession:
    """Reach a Spark Connect server and open a session there; settings of its JVM are its own."""
    try:
        import grpc
        from pyspark.sql import SparkSession
        from pyspark.sql.connect.client import DefaultChannelBuilder
    except ImportError as error:
        raise ConfigurationError(
            f"Spark Connect is not installed, and {_shown(url)} needs it: `pip install 'delayq[spark-connect]'`"
        ) from error
    try:
        with DefaultChannelBuilder(url).toChannel() as channel:
            grpc.channel_ready_future(channel).result(timeout=_CONNECT_PATIENCE)
    except grpc.FutureTimeoutError as error:
        raise ConfigurationError(f"no Spark Connect server answers at {_shown(url)}") from error
    return SparkSession.builder.appName(app).remote(url).config(map={**_OURS, **conf}).getOrCreate()


def _shown(master: str) -> str:
    """Return a master's URL without its parameters: one of them is a token."""
    return master.partition("/;")[0]


def _reason(error: Exception) -> str:
    """Return the first line of what an error of Python or Java says."""
    java = getattr(error, "java_exception", None)
    text = str(java.getMessage() if java is not None else error)
    return text.strip().partition("\n")[0] or type(error).__name__
