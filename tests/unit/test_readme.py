"""README and handbook are correct: their code runs, their diagrams match the states, and all names in them exist."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shlex
import signal
import sys
import threading
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import click
import pytest
import redis
from click.testing import CliRunner

import delayq
from delayq import Backoff, ConfigurationError, DelayQueue, QueueOptions, State, metrics, streams, workqueue
from delayq.broker.keys import Keys
from delayq.broker.scripts import names
from delayq.cli import main as cli
from delayq.options import read_settings
from delayq.values.times import HORIZON, to_millis
from tests.support.processes import run
from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
HANDBOOK = sorted((ROOT / "delayq" / "docs").glob("*.md"))
PAGES = [README, *HANDBOOK]
TOPICS = {page.stem for page in HANDBOOK}

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


class Block(NamedTuple):
    """A fenced block of code, the line of the page that its first line is on, and why it is not run, if it is not."""

    text: str
    line: int
    excuse: str


def blocks(page: Path, language: str) -> list[Block]:
    """Return the blocks of a language. A comment above a block says why it is not run."""
    text = page.read_text()
    found = re.finditer(r"(?:<!-- not run: ([^\n]+) -->\n)?^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [
        Block(match[3], text.count("\n", 0, match.start(3)), match[1] or "") for match in found if match[2] == language
    ]


def file_of(block: Block) -> str:
    """Return the file that a block is the content of, which its first line names; "" for none."""
    titled = re.match(r"# ([\w/]+\.py)\n", block.text)
    return titled[1] if titled else ""


def write_files(page: Path, folder: Path) -> None:
    """Write the files that a page shows; every folder among them is a package."""
    for block in blocks(page, "python"):
        if name := file_of(block):
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            for package in path.relative_to(folder).parents[:-1]:
                (folder / package / "__init__.py").touch()
            path.write_text(block.text)


def inline(page: Path) -> list[str]:
    """Return the inline code of a page."""
    prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"`([^`\n]+)`", prose)


def rows(page: Path, heading: str) -> Iterator[list[str]]:
    """Yield the rows of every table with a heading, by their first cells' names."""
    for table in re.findall(rf"^\| {heading} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", page.read_text(), re.MULTILINE):
        for row in table.splitlines():
            yield [cell.strip() for cell in row.strip("|").split(" | ")]


# Code blocks run


@pytest.fixture
def workplace(redis_url, tmp_path, monkeypatch):
    """A folder for the files of a page, and an empty Redis at DELAYQ_URL."""
    monkeypatch.setenv("DELAYQ_URL", redis_url)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    terminated = signal.getsignal(signal.SIGTERM)
    yield tmp_path
    signal.signal(signal.SIGTERM, terminated)


@every_page
def test_python_blocks_of_a_page_run(page, workplace, capsys):
    names: dict[str, Any] = {"__name__": "page"}
    write_files(page, workplace)
    try:
        for block in blocks(page, "python"):
            # Tests run below, and what is in a package belongs to a program that the shell blocks run.
            if block.excuse or file_of(block).startswith(("test_", "conftest")) or "/" in file_of(block):
                continue
            # Blank lines before it make a traceback show the line of the page.
            code = compile("\n" * block.line + block.text, page.name, "exec")
            if ".run()" in block.text:
                threading.Thread(target=stop_when_idle, args=(names,), daemon=True).start()
            exec(code, names)
    finally:
        for queue in list(names.values()):
            if isinstance(queue, DelayQueue):
                queue.close()
    if list(workplace.glob("test_*.py")):
        command = [sys.executable, "-m", "pytest", "-q", "-p", "delayq.testing.pytest_plugin", "."]
        alone = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # the others take as long to load as the tests
        done = run(command, cwd=workplace, env=alone, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout
    if page == README:
        assert "remember {'user': 42}\n" in capsys.readouterr().out


@pytest.mark.long
@every_page
def test_shell_commands_of_a_page_run(page, workplace, monkeypatch):
    write_files(page, workplace)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    for block in blocks(page, "sh"):
        # Commands that install delayq or run these tests are skipped.
        if not block.excuse and not block.text.startswith(("make ", "pip ")):
            for line in block.text.splitlines():
                code, output = run_line(line)
                assert code == 0, f"{line}\n{output}"


def run_line(line: str) -> tuple[int, str]:
    """Run a line of shell; in this process where it is a command of ours that leaves the process as it was."""
    words = shlex.split(line, comments=True)
    if words[0] == "delayq" and words[1] not in ("worker", "relay") and not {"|", ">"} & set(words):
        result = CliRunner().invoke(cli, words[1:])
        return result.exit_code, result.output
    done = run(["bash", "-c", f"set -o pipefail; {line}"], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def stop_when_idle(names: dict[str, Any]) -> None:
    """Stop `queue.run()` once no message is due soon, as a user would."""

    def running() -> list[DelayQueue[Any]]:
        queues = [queue for queue in list(names.values()) if isinstance(queue, DelayQueue)]
        return [queue for queue in queues if queue._consuming is not None and queue._consuming.running]

    def idle(queue: DelayQueue[Any]) -> bool:
        stats = queue.stats()
        soon = stats.next_due is not None and stats.next_due - stats.at < timedelta(seconds=5)
        return not soon and stats.counts.living == stats.counts.pending

    wait_until(running)
    for queue in running():
        wait_until(lambda queue=queue: idle(queue), every=0.05)
        queue.stop_consume()


# Diagrams


@pytest.fixture(scope="module")
def diagram():
    spec = importlib.util.spec_from_file_location("diagram", ROOT / "scripts" / "diagram.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.long
def test_diagrams_match_the_code(diagram):
    assert [page.name for page, _ in diagram.outdated()] == [], "run scripts/diagram.py"


@pytest.mark.long
def test_diagrams_change_with_the_states(diagram, monkeypatch):
    other = [replace(move, cause=move.cause.upper()) for move in diagram.TRANSITIONS]
    monkeypatch.setattr(diagram, "TRANSITIONS", other)
    assert [page.name for page, _ in diagram.outdated()] == ["README.md", "life-of-a-message.md"]


# Names exist


OBJECTS = {
    "queue": (delayq.DelayQueue, delayq.AsyncDelayQueue),
    "message": (delayq.Message, delayq.MessageInfo),
    "consuming": (delayq.Consuming, delayq.AsyncConsuming),
    "stats": (delayq.Stats,),
    "counts": (delayq.Counts,),
    "page": (delayq.Page,),
    "Backoff": (delayq.Backoff,),
}


@every_page
def test_attributes_exist(page):
    for code in inline(page):
        for owner, name in re.findall(r"\b(\w+)\.([a-z_]\w*)\b", code):
            if owner in OBJECTS and name != "py":
                assert any(name in dir(kind) for kind in OBJECTS[owner]), code


@every_page
def test_classes_exist(page):
    if page.stem in {"from-go", "from-asynq", "coming-from", "contributing", "django", "fastapi", "deployment"}:
        return  # they name classes of others, too
    for code in inline(page):
        if re.fullmatch(r"([A-Z][a-z]+){2,}(\(.*\))?", code):
            name = code.partition("(")[0]
            assert any(hasattr(package, name) for package in (delayq, metrics, streams, workqueue)), code


def commands(page: Path) -> list[str]:
    """Return the lines of the shell blocks and the inline code of a page."""
    return [line for block in blocks(page, "sh") for line in block.text.splitlines()] + inline(page)


@every_page
def test_make_targets_exist(page):
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for line in commands(page):
        if named := re.match(r"make ([\w-]+)", line):
            assert named[1] in targets, line


def every_command(group: click.Group = cli) -> Iterator[click.Command]:
    """Yield a command and all its subcommands."""
    yield group
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        yield from every_command(command) if isinstance(command, click.Group) else [command]


def options_of(command: click.Command) -> set[str]:
    """Return the options that a command takes."""
    return {"--help"}.union(*(param.opts + param.secondary_opts for param in command.params))


@every_page
def test_commands_and_their_options_exist(page):
    for line in commands(page):
        words = line.partition("#")[0].partition("|")[0].split()
        if words[:1] != ["delayq"]:
            continue
        command: click.Command = cli
        ours = words[1 : words.index("--")] if "--" in words else words[1:]
        for word in ours:
            if isinstance(command, click.Group) and re.fullmatch("[a-z][a-z-]*", word):
                found = command.get_command(click.Context(command), word)
                assert found is not None, line
                command = found
            elif word.startswith("--"):
                assert word in options_of(command), line


EXCUSED = r"Missing (argument|command)|does not exist|No such file|Usage: delayq|'[A-Z]+(=[A-Z]+)?'|'…'"
"""What may be wrong with a command of the handbook: it is only named, or its file is not there."""


@every_page
def test_commands_are_valid(page, monkeypatch):
    monkeypatch.setattr(click.Command, "invoke", lambda *_: None)
    wrong = []
    for line in [one.replace("\\\n", " ") for block in blocks(page, "sh") for one in lines(block)] + inline(page):
        if line.startswith("delayq "):
            words = shlex.shlex(line, posix=True, punctuation_chars=True)
            words.whitespace_split = True
            given = list(takewhile(lambda word: not set(word) <= set("|&;<>()"), words))
            ended = CliRunner().invoke(cli, given[1:], prog_name="delayq")
            if ended.exit_code and not re.search(EXCUSED, ended.stderr):
                wrong.append((line, ended.stderr))
    assert not wrong


def lines(block: Block) -> list[str]:
    """Return the lines of a shell block; one that ends with a backslash goes on."""
    return re.split(r"(?<!\\)\n", block.text)


@every_page
def test_options_of_the_command_line_exist(page):
    known = set().union(*map(options_of, every_command()))
    for code in inline(page):
        if re.match(r"--\w", code):
            assert code.split()[0] in known, code


def test_every_command_is_documented():
    (page,) = (page for page in HANDBOOK if page.stem == "command-line")
    explained = " ".join(commands(page))
    for name in cli.list_commands(click.Context(cli)):
        assert re.search(rf"delayq {name}\b", explained), name


@every_page
def test_extras_exist(page):
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(re.findall(r"delayq\[(\w+)\]", page.read_text())) <= set(extras)


@every_page
def test_links_lead_to_files_and_headings(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        file, _, heading = target.partition("#")
        if not target.startswith("https://"):
            linked = page.parent / file if file else page
            assert linked.exists(), target
            assert not heading or heading in anchors(linked), target


def anchors(page: Path) -> list[str]:
    """Return what GitHub names the headings of a page in links."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]


# The README


def test_the_readme_is_short():
    assert len(README.read_text().splitlines()) <= 130


def test_the_readme_names_the_sections_of_the_handbook():
    sections = re.findall(r"^## (.+)$", (ROOT / "delayq" / "docs" / "README.md").read_text(), re.MULTILINE)
    (named,) = re.findall(r"`delayq docs`: ([^.]+)\.", README.read_text())
    assert re.findall(r"\*\*(\w+)\*\*", named) == [section.lower() for section in sections]


# Contributing


def defined(path: Path) -> set[str]:
    """Return the functions, classes and methods of a module, methods as `Class.method`."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.add(node.name)
        if isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{one.name}" for one in node.body if isinstance(one, ast.FunctionDef)}
    return found


def test_files_and_functions_named_in_contributing_exist():
    (page,) = (page for page in HANDBOOK if page.stem == "contributing")
    missing = []
    for code in inline(page):
        path, _, name = code.removeprefix("python ").partition(":")
        if re.fullmatch(r"[a-z_/]+\.(py|lua)|[a-z_]+(/[a-z_]+)*/", path):
            known = [home / path for home in (ROOT, ROOT / "delayq", ROOT / "delayq/testing/torture")]
            found = next((one for one in known if one.exists()), None)
            if found is None or (name and name not in defined(found)):
                missing.append(code)
    assert not missing, missing


# The handbook


@pytest.mark.table("page", HANDBOOK, ids=lambda page: page.stem)
def test_topic_starts_with_a_title_and_a_sentence(page):
    title, summary, _ = page.read_text().split("\n\n", 2)
    assert re.fullmatch(r"# \w[^\n]+", title)
    assert re.fullmatch(r"[^.\n]+\.", summary)


def options() -> dict[str, list[str]]:
    """Return the rows of the tables of options in the handbook."""
    (page,) = (page for page in HANDBOOK if page.stem == "options")
    return {row[0].strip("`"): row for row in rows(page, "option")}


def test_every_option_is_documented_and_no_other():
    assert set(options()) == set(QueueOptions.__annotations__)


SETTINGS = [name for name in options() if name not in {"url", "redis", "prefix", "codec", "partitions"}]


@pytest.mark.table("name", SETTINGS)
def test_documented_default_of_an_option_is_correct(name):
    default = ast.parse(options()[name][1].strip("`"), mode="eval").body
    if isinstance(default, ast.Call):
        make = getattr(Backoff, default.func.attr)
        value = make(
            *map(ast.literal_eval, default.args), **{k.arg: ast.literal_eval(k.value) for k in default.keywords}
        )
    else:
        value = ast.literal_eval(default)
    assert read_settings({name: value}) == read_settings({})


@pytest.mark.table(
    "name",
    [
        name
        for name in SETTINGS
        if name
        not in {
            "strict",
            "events",
            "durability",
            "keep_errors",
            "owner",
            "is_failure",
            "lifespan",
            "breaker",
            "rate_limit",
            "burst",
            "lateness_slo",
            "redact",
        }
    ],
)
def test_documented_range_of_an_option_is_correct(name):
    least, most = re.match(r"`([^`]+)` to (`[^`]+`|100 years)", options()[name][2]).groups()
    ends = [ast.literal_eval(least), HORIZON // 1000 if most == "100 years" else ast.literal_eval(most.strip("`"))]
    for end, beyond in zip(ends, (-1, 1), strict=True):
        read_settings({name: end})
        if "timedelta" in str(get_type_hints(QueueOptions)[name]):
            beyond_it: object = timedelta(milliseconds=to_millis(end) + beyond)
        else:
            beyond_it = end + beyond
        with pytest.raises(ConfigurationError):
            read_settings({name: beyond_it})


def test_every_structure_script_and_state_is_documented():
    (page,) = (page for page in HANDBOOK if page.stem == "life-of-a-message")
    parts = {row[0].strip("`") for row in rows(page, "part")}
    scripts = {row[0].strip("`") for row in rows(page, "script")}
    states = set(re.findall(r"^- \*\*(\w+)\*\*", page.read_text(), re.MULTILINE))
    assert parts == set(Keys.__dataclass_fields__)
    assert scripts == set(names())
    assert states == set(State)


def lines_of(topic: str, language: str) -> list[str]:
    """Return the lines of the one block of a language in a chapter."""
    (page,) = (page for page in HANDBOOK if page.stem == topic)
    (block,) = blocks(page, language)
    return block.text.splitlines()


def test_redis_accepts_the_documented_configuration(start_redis):
    start_redis(*(word for line in lines_of("redis", "conf") for word in shlex.split(f"--{line}")))


@pytest.mark.long
def test_documented_access_rights_suffice(start_redis, workplace, monkeypatch):
    server = start_redis(tcp=True)
    with redis.Redis.from_url(server.url) as admin:
        (rule,) = lines_of("security", "text")
        admin.execute_command(*shlex.split(rule))
        port = admin.connection_pool.connection_kwargs["port"]
        (page,) = (page for page in HANDBOOK if page.stem == "life-of-a-message")
        names: dict[str, Any] = {}
        monkeypatch.setenv("DELAYQ_URL", f"redis://delayq:secret@127.0.0.1:{port}/0")
        for block in blocks(page, "python"):
            exec(block.text, names)
        names["queue"].purge()
        names["queue"].close()
        with DelayQueue("watched", events=True, dedupe_window="1h") as queue:
            queue.send_many(["hello"], run="nightly")
            assert queue.end_run("nightly").new == 1
            with queue.lease():
                pass
            assert [event.kind for event in queue.events()] == ["sent", "promoted", "delivered", "acked"]
            assert list(queue.events("now")) == []
        with pytest.raises(redis.exceptions.NoPermissionError):
            redis.Redis(port=port, username="delayq", password="secret").keys("*")
