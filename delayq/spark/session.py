"""Provides the Spark session: the active one, or a new one on this machine, a cluster or a Connect server."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from delayq.errors import ConfigurationError, short_repr
from delayq.spark.java_home import use_java, use_this_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[*]"
"""The default master: this machine, one task per core."""

_MASTER = re.compile(r"local(\[[\d*]+(, *[\d*]+)?\]|-cluster\[.+\])?|yarn|(spark|k8s|sc)://.+")

Setting = bool | float | str | None
"""A value of a Spark setting."""
SparkConf = dict[str, Setting]

_PACKAGES = "spark.jars.packages"
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_QUIET = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"
_OURS: SparkConf = {"spark.sql.session.timeZone": "UTC", "spark.sql.execution.arrow.pyspark.enabled": "true"}
_DRIVERS: SparkConf = {"spark.ui.showConsoleProgress": "false"}
_LOCAL: SparkConf = {
    "spark.ui.enabled": "false",
    # The machine's host name may resolve to an address that it does not have, for example behind a VPN.
    "spark.driver.host": "localhost",
    "spark.driver.bindAddress": "127.0.0.1",
}
_SUBMITTED = ("PYSPARK_GATEWAY_PORT", "SPARK_REMOTE")  # set by `spark-submit` and others that choose the master
_CONNECT_TIMEOUT = 20.0  # seconds to reach a server; PySpark's default is ten minutes


def session(app: str = "delayq", *, master: str | None = None, **conf: Setting) -> SparkSession:
    """Return the active Spark session, or start a new one.

    An active session is returned unchanged, whatever the arguments. A new one runs on `master`: `local[*]` by default,
    the URL of a cluster, or `sc://host:port` of a Spark Connect server; `spark-submit` chooses its own. Its time zone
    is UTC. A local session has no web UI, logs little and finds a Java by itself: see `delayq.spark.java_home`.

    `conf` are Spark settings and override delayq's: `session(**{"spark.driver.memory": "4g"})`.

    Raises `ConfigurationError` if Spark or Java is missing, or if the session does not start.
    """
    if master is not None and not _MASTER.fullmatch(master):
        raise ConfigurationError(
            f"unknown master {short_repr(master)}: use local[4], spark://host:port, yarn, k8s://… or sc://host:port"
        )
    try:
        from pyspark.errors import PySparkRuntimeError
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ConfigurationError("Spark is not installed: `pip install 'delayq[spark]'`") from error
    try:
        return SparkSession.active()
    except PySparkRuntimeError:  # no active session
        pass
    if master is None and not any(name in os.environ for name in _SUBMITTED):
        master = LOCAL
    try:
        if (master or os.environ.get("SPARK_REMOTE", "")).startswith("sc://"):
            return _connect(app, master or os.environ["SPARK_REMOTE"], conf)
        return _start(app, master, conf)
    except ConfigurationError:
        raise
    except Exception as error:  # Spark's own errors, py4j's and gRPC's
        where = f" on {_without_token(master)}" if master else ""
        raise ConfigurationError(f"Spark does not start{where}: {_reason(error)}{_hint(error, conf)}") from error


def _start(app: str, master: str | None, conf: SparkConf) -> SparkSession:
    """Start a JVM (unless `spark-submit` has started it) and a session in it."""
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


def _connect(app: str, url: str, conf: SparkConf) -> SparkSession:
    """Open a session on a Spark Connect server; JVM settings are the server's."""
    try:
        import grpc
        from pyspark.sql import SparkSession
        from pyspark.sql.connect.client import DefaultChannelBuilder
    except ImportError as error:
        raise ConfigurationError(
            f"{_without_token(url)} needs Spark Connect, which is not installed: `pip install 'delayq[spark-connect]'`"
        ) from error
    try:
        with DefaultChannelBuilder(url).toChannel() as channel:
            grpc.channel_ready_future(channel).result(timeout=_CONNECT_TIMEOUT)
    except grpc.FutureTimeoutError as error:
        raise ConfigurationError(f"no Spark Connect server answers at {_without_token(url)}") from error
    return SparkSession.builder.appName(app).remote(url).config(map={**_OURS, **conf}).getOrCreate()


def _without_token(master: str) -> str:
    """Return a master's URL without its parameters, which may include a token."""
    return master.partition("/;")[0]


def _reason(error: Exception) -> str:
    """Return the first line of the message of a Python or Java error."""
    java = getattr(error, "java_exception", None)
    text = str(java.getMessage() if java is not None else error)
    return text.strip().partition("\n")[0] or type(error).__name__


def _hint(error: Exception, conf: SparkConf) -> str:
    """Return what may be wrong if Java ends with packages to fetch: it prints the reason itself."""
    if _PACKAGES not in conf or "JAVA_GATEWAY_EXITED" not in str(error):
        return ""
    return f" Java tells above why; perhaps it cannot fetch {conf[_PACKAGES]}"
