"""Run the tests in two parts at the same time and report their coverage together; arguments are handed to both.

What needs no JVM runs on every core. What shares one Spark session runs beside it, and is told when both have ended.
An `-m` narrows both.
"""

import argparse
import os
import subprocess
import sys
import tempfile

NOTHING_SELECTED = 5  # of pytest's exit codes; fine in one of the two, when arguments ask for tests of the other
COVERAGE = ("--cov", "--cov-report=")
ALL_CORES = ("-n", str((os.cpu_count() or 1) + 1), "--dist", "worksteal")  # tests wait as long as they work
ONE_PROCESS = ("-n", "0")
APART = ".coverage-spark"  # not `.coverage.…`, which the other part removes when it begins


def pytest(*words: str) -> list[str]:
    """Return the command that runs pytest."""
    return [sys.executable, "-m", "pytest", *COVERAGE, *words]


def coverage(*words: str) -> None:
    """Run coverage."""
    subprocess.run([sys.executable, "-m", "coverage", *words], check=False)


def main() -> int:
    """Return 0 where every test that was selected passed, else the first exit code of pytest that is not 0."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("-m", dest="marked")
    given, rest = parser.parse_known_args()
    narrowed = f"({given.marked}) and " if given.marked else ""

    with tempfile.TemporaryFile() as told:
        spark = subprocess.Popen(
            # After `rest`: however many processes were asked for, there is one session.
            pytest(*rest, *ONE_PROCESS, "-m", f"{narrowed}spark and not torture"),
            stdout=told,
            stderr=subprocess.STDOUT,
            env=os.environ | {"COVERAGE_FILE": APART},
        )
        first = subprocess.run(pytest(*ALL_CORES, *rest, "-m", f"{narrowed}not torture and not spark"), check=False)
        codes = [first.returncode, spark.wait()]
        told.seek(0)
        print(told.read().decode(errors="replace"), flush=True)
    coverage("combine", "--append", "--quiet", APART)
    coverage("report")
    ran = [code for code in codes if code != NOTHING_SELECTED] or [NOTHING_SELECTED]
    return next((code for code in ran if code), 0)


if __name__ == "__main__":
    sys.exit(main())
