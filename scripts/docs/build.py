"""Build the site of the handbook: its pages, the reference of the public names, the changelog, and a search.

    scripts/docs/build.py

The pages are those of `delayq/docs`, in the order of its index. The build fails for a link that leads nowhere, a page
that the index does not list, a public name that is in no part of the reference, and for a file that a page would load
from another site.
"""

from __future__ import annotations

import inspect
import re
import shutil
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path

import delayq
from delayq.cli.admin.handbook import INDEX, sections

ROOT = Path(__file__).resolve().parents[2]
HANDBOOK = ROOT / "delayq" / "docs"
SITE = ROOT / "build" / "docs"
PARTS = {
    "DelayQueue": ["queue.delay_queue"],
    "AsyncDelayQueue": ["queue.async_delay_queue"],
    "Options": ["options", "privacy", "values.codec", "values.times", "values.backoff", "values.breaker"],
    "Sending": ["queue.sending"],
    "Consuming": ["queue.consuming", "queue.pooling", "worker", "values.outcomes", "broker"],
    "Tasks and hooks": ["queue.tasks", "queue.hooks"],
    "Schedules": ["schedules", "queue.scheduling"],
    "Dead letter": ["queue.dead_letter", "queue.dead_groups"],
    "Inspecting": ["queue.inspecting", "queue.repairing", "values.states"],
    "Changing many messages": ["queue.sweeps"],
    "Limits and pauses": ["queue.control"],
    "Errors": ["errors"],
}
"""The reference of `delayq`: the title of each page, and where the names on it are defined."""
MODULES = (
    *("delayq.testing", "delayq.delivery", "delayq.reminders", "delayq.streams", "delayq.workqueue", "delayq.bulk"),
    *(
        "delayq.archive",
        "delayq.report",
        "delayq.audit",
        "delayq.spark",
        "delayq.metrics",
        "delayq.telemetry",
        "delayq.web",
        "delayq.migrate",
    ),
    *("delayq.django", "delayq.outbox"),
)
"""The other modules with public names: a page each."""
MOCKED = ["pyspark"]
"""What modules import that is not installed for the site, as it is large."""
MEMBERS = """   :members:
   :undoc-members:
   :inherited-members: BaseException, Exception, Enum, StrEnum, str, int, float, tuple, dict, TypedDict, Generic
"""
"""What is told of a class: all that is public, but for what Python's own classes have."""


def part_of(name: str) -> str:
    """Return the page of the reference that has a name of `delayq`."""
    home = homes()[name]
    for title, places in PARTS.items():
        if any(f"{home}.".startswith(f"delayq.{place}.") for place in places):
            return title
    raise SystemExit(f"no part of the reference has {home}, where {name} is defined: add it to PARTS in {__file__}")


def homes() -> dict[str, str]:
    """Return where each public name of `delayq` is defined."""
    imports = re.findall(r"^    from (\S+) import (\w+) as", Path(delayq.__file__).read_text("utf-8"), re.MULTILINE)
    return {name: home for home, name in imports}


def toctree(caption: str, documents: Iterable[str]) -> str:
    """Return a part of the menu, which the page itself does not show."""
    options = f":hidden:\n:titlesonly:\n:maxdepth: 1\n:caption: {caption}\n"
    return "\n".join(["", "```{toctree}", options, *documents, "```", ""])


def entry(module: str, name: str) -> str:
    """Return the directive that documents a public name."""
    value = getattr(import_module(module), name)
    if inspect.isclass(value):
        if issubclass(value, BaseException):
            return f".. autoexception:: {module}.{name}\n{MEMBERS}   :show-inheritance:\n"
        return f".. autoclass:: {module}.{name}\n{MEMBERS}"
    kind = type(value)
    if not callable(value) and kind.__module__.partition(".")[0] not in ("delayq", "builtins"):
        return f".. py:data:: {module}.{name}\n   :type: {kind.__name__}\n"  # without the docstring of a foreign class
    return f".. auto{'function' if callable(value) else 'data'}:: {module}.{name}\n"


def reference() -> Iterator[tuple[str, str]]:
    """Yield the pages of the reference: file and text."""
    parts = defaultdict[str, list[str]](list)
    for name in delayq.__all__:
        parts[part_of(name)].append(name)
    shown: dict[int, str] = {}
    for title in PARTS:
        yield slug(title), page(title, "delayq", parts[title], shown)
    for module in MODULES:
        yield slug(module), page(module, module, import_module(module).__all__, shown)


def page(title: str, module: str, names: list[str], shown: dict[int, str]) -> str:
    """Return a page of the reference; what another page has shown is only named."""
    about = f"Public names of ``{module}``." if title != module else f".. automodule:: {module}"
    lines = [title, "=" * len(title), "", about, ""]
    for name in names:
        whole = f"{module}.{name}"
        first = shown.setdefault(id(getattr(import_module(module), name)), whole)
        lines.append(entry(module, name) if first == whole else f"``{whole}`` is :py:obj:`{first}`.\n")
    return "\n".join(lines)


def slug(title: str) -> str:
    """Return the name of the file of a page of the reference."""
    return title.lower().replace(" ", "-")


def handbook() -> dict[str, str]:
    """Return the pages of the handbook and the changelog: file and text. The index has the menu of them."""
    found = {path.name: path.read_text("utf-8") for path in HANDBOOK.glob("*.md")}
    found["index.md"] = found.pop(INDEX) + "".join(toctree(section, topics) for section, topics in sections().items())
    found["changelog.md"] = (ROOT / "CHANGELOG.md").read_text("utf-8").replace("](delayq/docs/", "](")
    return {name: text.replace(f"]({INDEX}", "](index.md") for name, text in found.items()}


def pages() -> dict[str, str]:
    """Return every page that Sphinx reads: its file and text."""
    found, api = handbook(), {f"reference/{name}": text for name, text in reference()}
    found["index.md"] += toctree("Reference", api) + toctree("Changes", ["changelog"])
    return found | {f"{name}.rst": text for name, text in api.items()}


def stage(folder: Path) -> None:
    """Write the pages and their pictures into a folder."""
    for name, text in pages().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    for image in HANDBOOK.glob("*.png"):
        shutil.copy(image, folder)


class Loaded(HTMLParser):
    """Collects the addresses of what a browser loads along with a page."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the address of a script, a style, a picture or a frame; links of the text are no part of the page."""
        if tag in {"script", "link", "img", "iframe", "source"}:
            self.addresses += [value or "" for name, value in attrs if name in {"src", "href", "srcset"}]


def foreign(site: Path) -> list[str]:
    """Return what pages and styles of a site load from elsewhere: `file: address`."""
    found = []
    for path in sorted(site.rglob("*.html")):
        loaded = Loaded()
        loaded.feed(path.read_text("utf-8"))
        found += [f"{path.relative_to(site)}: {one}" for one in loaded.addresses if re.match(r"(\w+:)?//", one)]
    for path in sorted(site.rglob("*.css")):
        addresses = re.findall(r"(?:@import\s+|url\()[\"']?((?:\w+:)?//[^\"')\s]+)", path.read_text("utf-8"))
        found += [f"{path.relative_to(site)}: {one}" for one in addresses]
    return found


def main() -> int:
    """Build the site and print where it is; return the exit code."""
    # Only `make docs` installs it.
    from sphinx.cmd.build import build_main
    from sphinx.ext.autodoc.mock import mock

    source, site = SITE / "pages", SITE / "html"
    shutil.rmtree(SITE, ignore_errors=True)  # Sphinx says nothing about pages that it need not read again
    import_module("pyarrow")  # it would take a mock for NumPy
    with mock(MOCKED):
        stage(source)
    options = ["--fail-on-warning", "--keep-going", "--quiet", "-D", f"autodoc_mock_imports={','.join(MOCKED)}"]
    code = build_main([*options, "-c", str(Path(__file__).parent), "-d", str(SITE / "state"), str(source), str(site)])
    for one in foreign(site) if not code else []:
        print(f"loads from another site: {one}", file=sys.stderr)
        code = 1
    if not code:
        print(site / "index.html")
    return code


if __name__ == "__main__":
    sys.exit(main())
