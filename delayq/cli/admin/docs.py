"""`delayq docs`: shows the pages of the handbook, which is part of the package."""

from __future__ import annotations

import re
import sys
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from delayq.cli.admin import handbook
from delayq.cli.support.exit_codes import CommandError, Exit
from delayq.cli.support.options import json_option
from delayq.cli.support.output import console, print_details, print_json, print_note
from delayq.errors import did_you_mean

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem
    from rich.console import Console

MAX_WIDTH = 100
"""Characters of a line of a rendered page: longer ones are hard to read."""


def _files_of(topic: str) -> Traversable | None:
    """Return the folder of files that belong to a page; None if it has none."""
    folder = files("delayq").joinpath("docs", topic)
    return folder if folder.is_dir() else None


def _contents(folder: Traversable) -> dict[Path, bytes]:
    """Return the files of a folder and of those below it, by their path in it."""
    found: dict[Path, bytes] = {}
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir() and entry.name != "__pycache__":
            found |= {Path(entry.name, path): text for path, text in _contents(entry).items()}
        elif entry.is_file():
            found[Path(entry.name)] = entry.read_bytes()
    return found


def _write_files(topic: str, target: Path) -> list[Path]:
    """Write the files of a page into a folder and return their paths; none if one of them exists there already."""
    folder = _files_of(topic)
    if folder is None:
        having = ", ".join(name for name in handbook.pages() if _files_of(name))
        raise CommandError(f"the page {topic!r} has no files; these have: {having}", Exit.USAGE)
    contents = {target / path: text for path, text in _contents(folder).items()}
    if existing := [str(path) for path in contents if path.exists()]:
        raise CommandError(f"{existing[0]} exists already: name an empty folder")
    try:
        for path, text in contents.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text)
    except OSError as error:
        raise CommandError(f"cannot write {error.filename or target}: {error.strerror}") from error
    return list(contents)


def _page_about(command: str, pages: dict[str, Traversable]) -> str:
    """Return the page that has a command most often, that of the command line in doubt; '' if it is no command."""
    from delayq.cli.app import COMMANDS

    if not any(command in section for section in COMMANDS.values()):
        return ""
    used = re.compile(rf"(?<!from )\bdelayq {command} ")  # not "from delayq import …"
    texts = {name: page.read_text("utf-8") for name, page in pages.items()}
    counts = {name: len(used.findall(text)) for name, text in texts.items()}
    of_all = counts.pop("command-line") + texts["command-line"].count(f"`{command}`")
    page = max(counts, key=counts.__getitem__)
    return page if counts[page] >= max(of_all, 2) else "command-line"


def _title(text: str) -> str:
    first = next((line for line in text.splitlines() if line.startswith("# ")), "")
    return first.removeprefix("# ").strip()


def _print_index(*, as_json: bool) -> None:
    sections = handbook.sections()
    if as_json:
        found = [(section, topic, title) for section, topics in sections.items() for topic, title in topics.items()]
        print_json({"topics": [dict(zip(("section", "topic", "title"), one, strict=True)) for one in found]})
        return
    width = max(len(topic) for topics in sections.values() for topic in topics)
    for section, topics in sections.items():
        click.echo(section)
        print_details({f"  {topic:{width}}": title for topic, title in topics.items()})
    print_note("read a page with: delayq docs TOPIC")


def _print_found(text: str, among: dict[str, Traversable], *, as_json: bool) -> None:
    """Print where pages have all words of a text."""
    words = text.split()
    if not words:
        raise CommandError("--search needs a word, such as: delayq docs --search 'dead letter'", Exit.USAGE)
    found = handbook.search(words, among)
    if not found:
        raise CommandError(f"no page has {' and '.join(map(repr, words))}", Exit.NOT_FOUND)
    if as_json:
        print_json({"found": [one._asdict() for one in found]})
        return
    for one in found:
        click.echo(f"{one.topic}:{one.line}: {one.heading}" + (f": {one.text}" if one.text != one.heading else ""))
    print_note("read a page with: delayq docs TOPIC")


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001
    from click.shell_completion import CompletionItem

    return [CompletionItem(topic) for topic in handbook.pages() if topic.startswith(incomplete)]


def _show(printer: Console, text: str) -> None:
    """Render a page on a terminal, in a pager if it is longer than the screen."""
    from rich.markdown import Markdown

    with printer.capture() as captured:
        printer.print(Markdown(text), width=min(printer.width, MAX_WIDTH))
    rendered = captured.get()
    if rendered.count("\n") >= printer.height and sys.stdin.isatty() and sys.stdout.isatty():
        click.echo_via_pager(rendered)  # tells less to show colours
    else:
        click.echo(rendered, nl=False, color=True)


def _print_page(topic: str, text: str, *, as_json: bool) -> None:
    printer = console()
    if as_json:
        print_json({"topic": topic, "title": _title(text), "text": text})
    elif printer.is_terminal:
        _show(printer, text)
    else:
        click.echo(text, nl=not text.endswith("\n"))


def _known(topic: str, pages: dict[str, Traversable]) -> str:
    """Return the topic of a page as it is spelled in the index; raise `CommandError` if there is none."""
    name = topic.lower().removesuffix(".md")
    if name in pages:
        return name
    if about := _page_about(topic.lower(), pages):
        text = f"no topic named {topic!r}: read about this command with delayq docs {about}, or delayq {topic} --help"
        raise CommandError(text, Exit.NOT_FOUND)
    near = did_you_mean(topic, pages) or f"; the topics are {', '.join(pages)}"
    raise CommandError(f"no topic named {topic!r}{near}", Exit.NOT_FOUND)


@click.command()
@click.argument("topic", required=False, shell_complete=_complete)
@click.option(
    "--files",
    "target",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write the files that belong to the page into the folder DIR, such as those of `deployment`.",
)
@click.option(
    "--search",
    "text",
    metavar="WORDS",
    help="Print where the pages, or the page TOPIC, have all these words, in any case: headings first.",
)
@json_option
def docs(topic: str | None, *, target: Path | None, text: str | None, as_json: bool) -> None:
    """Show the page TOPIC of the handbook; without TOPIC, list the pages.

    On a terminal, renders the page and shows it with $PAGER, by default less; elsewhere prints plain Markdown.

    JSON: {"topics": [{"section", "topic", "title"}, …]}; with TOPIC {"topic", "title", "text"}; with --files {"topic",
    "files"}; with --search {"found": [{"topic", "line", "heading", "text"}, …]}.
    """
    pages = handbook.pages()
    if target is not None and text is not None:
        raise CommandError("--files writes files, and --search prints: give one of them", Exit.USAGE)
    if target is not None and topic is None:
        raise CommandError("--files needs a TOPIC, such as deployment", Exit.USAGE)
    if topic is not None:
        topic = _known(topic, pages)
    if text is not None:
        _print_found(text, pages if topic is None else {topic: pages[topic]}, as_json=as_json)
    elif topic is None:
        _print_index(as_json=as_json)
    elif target is not None:
        written = [str(path) for path in _write_files(topic, target)]
        print_json({"topic": topic, "files": written}) if as_json else click.echo("\n".join(written))
    else:
        _print_page(topic, pages[topic].read_text("utf-8"), as_json=as_json)
