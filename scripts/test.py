"""Run the tests in two processes and report their coverage together; arguments are handed to both.

First what needs no JVM, on every core; then what shares one Spark session. An `-m` narrows both.
"""

import argparse
import os
import subprocess
import sys

NOTHING_SELECTED = 5  # of pytest's exit codes; fine in one of the two, when arguments ask for tests of the other
INTERRUPTED = 2
COVERAGE = ("--cov", "--cov-report=")
ALL_CORES = ("-n", str((os.cpu_count() or 1) + 1), "--dist", "worksteal")  # tests wait as long as they work
ONE_PROCESS = ("-n", "0")


def pytest(*words: str) -> int:
    """Run pytest and return its exit code."""
    return subprocess.run([sys.executable, "-m", "pytest", *words], check=False).returncode


def main() -> int:
    """Return 0 where every test that was selected passed, else the first exit code of pytest that is not 0."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("-m", dest="marked")
    given, rest = parser.parse_known_args()
    narrowed = f"({given.marked}) and " if given.marked else ""

    codes = [pytest(*ALL_CORES, *COVERAGE, *rest, "-m", f"{narrowed}not torture and not spark")]
    if codes != [INTERRUPTED]:
        # After `rest`: however many processes were asked for, there is one session.
        codes.append(pytest(*COVERAGE, "--cov-append", *rest, *ONE_PROCESS, "-m", f"{narrowed}spark and not torture"))
    subprocess.run([sys.executable, "-m", "coverage", "report"], check=False)
    ran = [code for code in codes if code != NOTHING_SELECTED] or [NOTHING_SELECTED]
    return next((code for code in ran if code), 0)


if __name__ == "__main__":
    sys.exit(main())
