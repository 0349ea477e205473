"""Run delayq with the oldest packages that pyproject.toml allows: whether its lower bounds are true.

    make test-lowest                all extras but those of Spark
    make test-lowest ARGS="cron"    some of them

Each extra gets an environment of its own, in which delayq is imported and every command prints its help. Then the tests
that concern an extra run with those of all others installed, as they need them. Packages come from the network.
"""

import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTHON = "3.11"  # old releases have no wheels for a newer one
UV = Path(sys.executable).with_name("uv")
LEFT_OUT = {"spark", "spark-connect", "spark-demo", "jre", "service", "all"}
"""Extras that are too large, or made of others."""
TESTS = {
    "": "tests/conformance tests/unit/test_codec.py tests/unit/test_executor_clients.py tests/cli/test_output.py",
    "embedded": "tests/behaviour/test_embedded.py",
    "demo": "tests/demo/test_balance.py tests/demo/test_plan.py",
    "holidays": "tests/behaviour/test_schedule_exceptions.py",
    "cron": "tests/unit/test_timetable.py",
    "rrule": "tests/unit/test_rrule.py",
    "reminders": "tests/reminders/test_remind.py",
    "http": "tests/delivery/test_webhook.py",
    "bulk": "tests/bulk",
    "archive": "tests/archive",
    "prometheus": "tests/metrics/test_queue_metrics.py tests/metrics/test_endpoint.py",
    "crypto": "tests/unit/test_encrypted.py",
    "django": "tests/django",
    "otel": "tests/telemetry",
    "web": "tests/web",
}
"""The tests of each extra; those of "" concern what is always installed."""
OF_TESTS = ("aiosmtpd", "fastapi", "freezegun", "hypothesis", "pydantic", "pytest", "pytest-randomly", "pytest-timeout")
OF_TESTS += ("pytest-xdist", "pyyaml", "trustme")
HELP = """
import click
from click.testing import CliRunner
from delayq.cli import main

def show(command, words):
    shown = CliRunner().invoke(main, [*words, "--help"])
    assert shown.exit_code == 0, (words, shown.output, shown.exception)
    context = click.Context(command)
    for name in command.list_commands(context) if isinstance(command, click.Group) else ():
        show(command.get_command(context, name), [*words, name])

show(main, [])
"""


def call(*words: str | Path) -> None:
    """Run a program, which must succeed."""
    subprocess.run(words, check=True, cwd=ROOT)


def install(python: Path, *words: str) -> None:
    """Install packages into an environment."""
    call(UV, "pip", "install", "--quiet", "--python", python, *words)


def environment(folder: Path, extras: list[str], *more: str) -> Path:
    """Make an environment with the oldest packages that extras allow, and return its Python."""
    call(UV, "venv", "--quiet", "--python", PYTHON, folder)
    python = folder / "bin" / "python"
    install(python, "--resolution", "lowest-direct", "--editable", f"{ROOT}[{','.join(extras)}]", *more)
    return python


def main() -> None:
    """Check the extras that are asked for, or all; end with an error at the first that does not work."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    extras = sorted(set(declared) - LEFT_OUT)
    asked = sys.argv[1:] or ["", *extras]
    if unknown := (set(extras) | set(asked)) - set(TESTS):
        sys.exit(f"test_lowest: no tests are named for {', '.join(sorted(unknown))}")
    with tempfile.TemporaryDirectory() as folder:
        for extra in asked:
            python = environment(Path(folder, f"alone-{extra}"), [extra] if extra else [])
            call(python, "-W", "error", "-c", HELP)
            print(f"{extra or 'no extra'}: every command prints its help", flush=True)
        python = environment(Path(folder, "all"), extras, "opentelemetry-sdk>=1.30")
        install(python, *OF_TESTS)
        paths = [path for extra in asked for path in TESTS[extra].split()]
        call(python, "-m", "pytest", "-q", "-n", "0", "-p", "no:randomly", "-m", "not long and not torture", *paths)


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
