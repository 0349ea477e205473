"""Test the pipelines of the wheel with each PySpark that it supports, the newest included.

    make test-spark-matrix                 4.0, 4.1, 4.2 and the newest
    make test-spark-matrix ARGS="4.1"      one of them

Each gets an environment of its own (450 MB, from the network) with the newest packages that it allows, but for those of
the tests. The tests are those of TESTS: plan, load, snapshot, event stream, streaming sink, audit and report.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from test_lowest import OF_TESTS, PYTHON, UV
from test_matrix import LeftOutError, Matrix, environment, find_python, told

VERSIONS = ("4.0", "4.1", "4.2", "newest")
TESTS = (
    "tests/spark/test_ways_in.py::test_pipelines_on_a_spark_of_their_own",
    "tests/spark/test_event_source.py",
    "tests/spark/test_source.py::test_stream_is_written_and_continues_after_a_restart",
    "tests/spark/test_source.py::test_source_of_a_module_is_registered_by_spark_itself",
)
UNCLOSED = ("-W", "ignore::ResourceWarning", "-W", "ignore::pytest.PytestUnraisableExceptionWarning")
"""PySpark before 4.2 leaves sockets open when a query fails."""


class SparkMatrix(Matrix):
    """Environments with the versions of PySpark."""

    def _python(self, version: str) -> Path:
        folder = self._folder / version
        told(UV, "venv", "--quiet", "--python", find_python(PYTHON) or PYTHON, folder)
        python = folder / "bin" / "python"
        pyspark = "pyspark" if version == "newest" else f"pyspark=={version}.*"
        packages = (f"{self._wheel}[spark,jre,archive,reminders]", pyspark, *OF_TESTS)
        told(UV, "pip", "install", "--quiet", "--python", python, *packages)
        return python

    def passes(self, version: str) -> bool:
        """Run the tests with a version, print how it went, and return whether all passed."""
        python = self.python(version)
        found = told(python, "-c", "import pyspark; print(pyspark.__version__)")
        pytest = (python, "-m", "pytest", "-q", "-n", "0", "-p", "from_wheel", *UNCLOSED, "--timeout", "900", *TESTS)
        began = time.monotonic()
        done = subprocess.run(pytest, check=False, cwd=self._copy, env=environment(), stdout=subprocess.PIPE, text=True)
        if done.returncode:
            print(done.stdout)
        counts = done.stdout.strip().rpartition("\n")[2]
        print(f"{version:6} {counts}, {time.monotonic() - began:.0f} s (PySpark {found})", flush=True)
        return not done.returncode


def main() -> None:
    """Run what is asked for, or all; end with an error if a test fails, or if a version is not to be had."""
    asked = sys.argv[1:] or VERSIONS
    if unknown := set(asked) - {*VERSIONS}:
        sys.exit(f"test_spark_matrix: {', '.join(sorted(unknown))}? there are {' '.join(VERSIONS)}")
    with tempfile.TemporaryDirectory() as folder:
        matrix = SparkMatrix(Path(folder))
        try:
            passed = [matrix.passes(version) for version in asked]
        except LeftOutError as error:
            sys.exit(f"test_spark_matrix: {error}")
    sys.exit(not all(passed))


if __name__ == "__main__":
    main()
