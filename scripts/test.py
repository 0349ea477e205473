"""Run the tests: `quick`, `long`, `spark` or `all` of them (but for `torture`); further arguments go to pytest.

A whole set runs in two halves at the same time: what needs no JVM on every core, then Django's tests; and what shares
one Spark session in a process of its own, whose output follows when both have ended. `quick` has one
test of Spark, which runs each pipeline. `spark` has all but the long ones, `long` has all that `quick` leaves out.
`coverage` runs the quick tests and those of Spark, measures both and lists the lines and branches that they miss; it
takes half as long again.

A selection (a path, -k, -m, -x, …) runs in one process, so that a file takes as long as its tests. Of a named file
all tests run, also the long ones.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.processes import Process  # noqa: E402 - `tests` is no installed package

NOTHING_SELECTED = 5  # of pytest's exit codes; fine in one of the halves, when arguments ask for tests of the other
QUICK, LONG, ALL = "not torture and not long", "long and not torture", "not torture"
SETS = {
    "quick": (QUICK, "smoke"),
    "long": (LONG, f"{ALL} and not smoke"),
    "spark": ("", QUICK),
    "all": (ALL, ALL),
    "coverage": (QUICK, QUICK),
}
"""The expressions of marks of both halves: without Spark, and with it."""
SELECTING = ("-k", "-x", "--maxfail", "--lf", "--last-failed", "--ff", "--failed-first", "--sw", "--stepwise", "--co")
NEEDLESS = ("randomly", "xdist", "cov")  # plugins that take as long to load as the tests of a file
COVERAGE = ("--cov", "--cov-report=")
ALL_CORES = ("-n", str((os.cpu_count() or 1) + 2), "--dist", "worksteal")  # tests wait as long as they work
ONE_PROCESS = ("-n", "0")
SPARK_TESTS = "tests/spark"  # those that need the JVM are all here: to collect the others takes long
APART = ".coverage-spark"  # not `.coverage.…`, which the other half removes when it begins
DJANGO_TESTS = "tests/django"  # set up once in a process, it changes time zone and logging there: so it has its own


def pytest(*words: str) -> list[str]:
    """Return the command that runs pytest."""
    return [sys.executable, "-m", "pytest", *words]


def start(command: list[str], **options: Any) -> Process:
    """Start pytest so that it ends with this process, however this one ends; Ctrl-C reaches both."""
    return Process(command, lasting=True, start_new_session=False, **options)


def both(*expressions: str) -> str:
    """Return the expression of marks that is true where all are."""
    return " and ".join(f"({one})" for one in expressions if one)


def coverage(*words: str) -> str:
    """Run coverage and return what it prints."""
    done = subprocess.run([sys.executable, "-m", "coverage", *words], check=False, stdout=subprocess.PIPE)
    return done.stdout.decode()


def cache_byte_code() -> None:
    """Keep byte code in .venv where it is kept nowhere: the tests start a thousand interpreters."""
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
        sys.pycache_prefix = os.environ.setdefault("PYTHONPYCACHEPREFIX", str(ROOT / ".venv" / "byte-code"))


def compile_tests() -> None:
    """Compile the tests of a fresh checkout once, on every core; each process that collects them would do it again."""
    tests = ROOT / "tests"
    if Path(cache_from_source(tests / "conftest.py")).parent.exists():
        return
    shares: list[list[Path]] = [[] for _ in range(os.cpu_count() or 1)]
    for folder in sorted(filter(Path.is_dir, tests.iterdir()), key=size, reverse=True):
        min(shares, key=lambda share: sum(map(size, share))).append(folder)
    for one in [start(pytest("-q", "--co", *map(str, share)), stdout=subprocess.DEVNULL) for share in shares]:
        one.wait()  # an error is told by the tests themselves


def size(folder: Path) -> int:
    """Return the bytes of the modules below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*.py"))


def is_path(word: str) -> bool:
    """Tell whether an argument names a file or a test in it."""
    return not word.startswith("-") and Path(word.partition("::")[0]).exists()


def run_selection(words: list[str], marked: str) -> int:
    """Run a selection in one process; with coverage or in several processes only where an argument asks for it."""
    plugins = [f"-pno:{name}" for name in NEEDLESS if not any(needs(word, name) for word in words)]
    os.execv(sys.executable, pytest(*plugins, *words, "-m", marked))  # noqa: S606


def needs(word: str, plugin: str) -> bool:
    """Tell whether an argument is an option of a plugin, or names it."""
    options = {"randomly": ("--randomly", "-prandom"), "xdist": ("-n", "--dist", "--tx"), "cov": ("--cov", "--no-cov")}
    return plugin in word or word.startswith(options[plugin])


def run_halves(words: list[str], without_spark: str, with_spark: str, *, measured: bool) -> int:
    """Run both halves; returns 0 where every test passed, else the first exit code of pytest that is not 0."""
    words = [*(COVERAGE if measured else ()), *words]
    with tempfile.TemporaryFile() as output:
        spark = start(
            # After `words`: however many processes were asked for, there is one session.
            pytest(*words, *ONE_PROCESS, "-m", both(with_spark, "spark"), SPARK_TESTS),
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | {"COVERAGE_FILE": APART},
        )
        codes = []
        if without_spark:
            first = both(without_spark, "not spark")
            codes.append(start(pytest(*ALL_CORES, *words, "-m", first, f"--ignore={DJANGO_TESTS}")).wait())
            codes.append(start(pytest(*words, *ONE_PROCESS, "-m", first, DJANGO_TESTS)).wait())
        codes.append(spark.wait())
        output.seek(0)
        print(output.read().decode(errors="replace"), flush=True)
    if measured:
        coverage("combine", "--append", "--quiet", APART)
        print(coverage("report"))
    ran = [code for code in codes if code != NOTHING_SELECTED] or [NOTHING_SELECTED]
    return next((code for code in ran if code), 0)


def main() -> int:
    """Return the exit code of pytest."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("set", choices=SETS)
    parser.add_argument("-m", dest="marked", default="")
    asked, words = parser.parse_known_args()
    cache_byte_code()
    paths = [word for word in words if is_path(word)]
    if paths or asked.marked or any(word.startswith(SELECTING) for word in words):
        named = any(not Path(path).is_dir() for path in paths)  # what is named is run, be it long or not
        apart = "" if paths or "spark" in asked.marked else "not spark"
        return run_selection(words, both(asked.marked, ALL if named else SETS[asked.set][0] or QUICK, apart))
    compile_tests()
    return run_halves(words, *SETS[asked.set], measured=asked.set == "coverage")


if __name__ == "__main__":
    sys.exit(main())
