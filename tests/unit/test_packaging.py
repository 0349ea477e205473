"""What a package index shows and installs: links that lead somewhere, extras, and a README that runs as printed."""

from __future__ import annotations

import importlib
import os
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from delayq import DelayQueue
from tests.support.processes import Process, run

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
HOME = PROJECT["urls"]["Repository"]


def fenced(language: str) -> list[str]:
    """Return the blocks of a language in the README."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def parts_of(extra: str) -> Iterator[str]:
    """Yield an extra and all extras that it is made of."""
    yield extra
    for requirement in PROJECT["optional-dependencies"][extra]:
        if made_of := re.match(r"delayq\[(.+)\]", requirement):
            for part in made_of[1].split(","):
                yield from parts_of(part)


def test_what_an_index_shows_has_no_relative_links():
    shown = README
    for change in PYPROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]:
        shown = re.sub(change["pattern"], change["replacement"], shown)
    targets = re.findall(r"\]\(([^)]+)\)|(?:src|href)=\"([^\"]+)\"", shown)
    addresses = ["".join(target) for target in targets] + list(PROJECT["urls"].values())
    assert not [address for address in addresses if not address.startswith(("https://", "#"))]
    ours = [address.removeprefix(HOME) for address in addresses if address.startswith(HOME)]
    paths = [re.sub(r"^/(blob|raw|tree)/main/", "", path) for path in ours if path]
    assert len(paths) >= 6
    assert not [path for path in paths if not (ROOT / path).exists()]
    images = re.findall(r"!\[[^]]*\]\(([^)]+)\)", shown)
    assert all("/raw/" in image for image in images)  # blob is a page about it


def test_all_is_all_but_spark_and_what_belongs_to_it():
    spark = {extra for extra in PROJECT["optional-dependencies"] if extra.startswith("spark")} | {"jre"}
    assert set(parts_of("all")) == set(PROJECT["optional-dependencies"]) - spark


def test_service_is_what_the_handbook_says():
    page = (ROOT / "delayq" / "docs" / "deployment.md").read_text()
    (named,) = re.findall(r"extra\s+`service`: ([^.]+)\.", page)
    assert set(parts_of("service")) == {"service", *re.findall(r"`(\w+)`", named)}


def test_tools_that_are_fetched_have_a_version():
    setup, makefile = (ROOT / "scripts" / "setup").read_text(), (ROOT / "Makefile").read_text()
    assert re.search(r"^UV_VERSION=\d[\d.]+ ", setup, re.MULTILINE)
    assert re.findall(r"pip install \"?(uv\S*)", setup) == ['uv==$UV_VERSION"']
    tools = re.findall(r"uv tool run (\S+)", makefile)
    assert tools
    assert not [tool for tool in tools if not re.fullmatch(r"[\w-]+@\d[\d.]+", tool)]


@pytest.fixture
def matrix(monkeypatch):
    """The script behind `make test-matrix`."""
    monkeypatch.syspath_prepend(ROOT / "scripts")
    return importlib.import_module("test_matrix")


def test_the_matrix_has_every_python_that_an_index_shows(matrix):
    shown = {name.rpartition(" ")[2] for name in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", name)}
    assert {python.rstrip("t") for python in matrix.PYTHONS} == shown
    assert PROJECT["requires-python"] == f">={matrix.PYTHONS[0]}"
    assert {python for python, _ in matrix.combinations()} >= {*matrix.PYTHONS}
    assert {server for _, server in matrix.combinations()} == {*matrix.SERVERS}


def test_the_matrix_is_narrowed_by_words(matrix, monkeypatch):
    monkeypatch.setattr(matrix, "OWN", "3.12")
    assert matrix.combinations(["3.13"]) == [("3.13", "redis")]
    assert matrix.combinations(["3.12"]) == [("3.12", "redis"), ("3.12", "redis-6.2"), ("3.12", "valkey-9")]
    assert matrix.combinations(["valkey-9"]) == [("3.12", "valkey-9")]
    assert matrix.combinations(["3.14", "3.13", "valkey-9"]) == [("3.13", "valkey-9"), ("3.14", "valkey-9")]
    with pytest.raises(SystemExit, match=r"3\.10, valky\? there are 3\.11 .* valkey-9"):
        matrix.combinations(["valky", "3.11", "3.10"])


def test_the_matrix_finds_the_pythons_that_are_here(matrix):
    script = "import sys; print(*sys.version_info[:2], sep='.')"
    assert matrix.told(matrix.find_python(matrix.OWN), "-c", script) == matrix.OWN
    with pytest.raises(matrix.LeftOutError, match="boom"):
        matrix.told(sys.executable, "-c", "raise SystemExit('boom')")


def test_the_matrix_tells_the_wheel_from_a_checkout(matrix, tmp_path):
    (tmp_path / "delayq").mkdir()
    (tmp_path / "delayq" / "__init__.py").touch()
    with pytest.raises(matrix.LeftOutError, match=f"AssertionError: {tmp_path}"):
        matrix.told(sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {matrix.CHECK}")


@pytest.mark.long
def test_the_readme_runs_with_its_own_install_line(tmp_path, redis_url):
    """Packages come from the network, but delayq itself, which is built here."""
    uv = Path(sys.executable).with_name("uv")
    built = run([uv, "build", "--quiet", "--wheel", "--out-dir", tmp_path, ROOT], capture_output=True, text=True)
    if "Failed to fetch" in built.stderr or "No solution found" in built.stderr:
        pytest.skip("no network")
    assert built.returncode == 0, built.stderr
    run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    install, programs = re.findall(r"`(pip install [^`]+)`", README)[0], fenced("python")
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"} | {
        "PATH": f"{tmp_path / 'venv' / 'bin'}:{os.environ['PATH']}",
        "PIP_FIND_LINKS": f"{tmp_path} {os.environ.get('PIP_FIND_LINKS', '')}",
        "PIP_ONLY_BINARY": "delayq",
        "DELAYQ_URL": redis_url,
        "PYTHONUNBUFFERED": "1",
    }
    done = run(["bash", "-ec", install], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (installed,) = tmp_path.glob("venv/lib/python*/site-packages/delayq/__init__.py")
    assert installed.read_bytes() == (ROOT / "delayq" / "__init__.py").read_bytes()  # no other of this name
    (tmp_path / "first.py").write_text(programs[0])
    with Process(["python", "first.py"], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout.readline() == "remember {'user': 42}\n"
        first.send_signal(signal.SIGINT)
    (tmp_path / "app.py").write_text(programs[1])
    run(["python", "app.py"], cwd=tmp_path, env=environment, check=True)
    command = ["delayq", "worker", "app", "--burst"]
    done = run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with DelayQueue("orders", url=redis_url) as queue:
        assert queue.counts().pending >= 3
        assert [schedule.name for schedule in queue.schedules.list()] == ["digest"]
