"""The site of the handbook: `make docs` builds it, and fails for what is not tested here, such as a broken link."""

import importlib.util
import re
from importlib import import_module
from pathlib import Path

import pytest

import delayq

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def build():
    """The script behind `make docs`."""
    spec = importlib.util.spec_from_file_location("build", ROOT / "scripts" / "docs" / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_menu_has_the_pages_in_the_order_of_the_index(build):
    index = (ROOT / "delayq" / "docs" / "README.md").read_text()
    pages = build.handbook()
    menus = re.findall(r"```{toctree}\n(?::\w+:.*\n)*:caption: (.+)\n\n((?:.+\n)+)```", pages["index.md"])
    assert pages["index.md"].startswith(index)
    assert [caption for caption, _ in menus] == re.findall(r"^## (.+)$", index, re.MULTILINE)
    topics = [topic for _, topics in menus for topic in topics.split()]
    assert topics == re.findall(r"^- \[.+?\]\((.+?)\.md\)", index, re.MULTILINE)
    assert {f"{topic}.md" for topic in topics} == {*pages} - {"index.md", "changelog.md"}


def test_links_of_the_changelog_and_to_the_index_lead_to_pages_of_the_site(build):
    pages = build.handbook()
    linked = {target for text in pages.values() for target in re.findall(r"\]\(([\w/.-]+\.md)", text)}
    assert linked <= {*pages}
    assert "](index.md)" in pages["changelog.md"]


def test_every_public_name_has_a_page_of_the_reference(build):
    assert {build.part_of(name) for name in delayq.__all__} == {*build.PARTS}
    public = {f"delayq.{path.parent.name}" for path in (ROOT / "delayq").glob("*/__init__.py")} - {"delayq.cli"}
    assert {*build.MODULES} == {name for name in public if hasattr(import_module(name), "__all__")}


def test_a_name_from_elsewhere_ends_the_build(build, monkeypatch):
    monkeypatch.setattr(build, "homes", lambda: {"News": "delayq.queue.newspaper"})
    with pytest.raises(SystemExit, match=r"delayq\.queue\.newspaper, where News is defined: add it to PARTS"):
        build.part_of("News")


@pytest.mark.parametrize(
    ("file", "text", "loaded"),
    [
        ("a.html", '<script src="https://cdn.example/x.js"></script>', "https://cdn.example/x.js"),
        ("a.html", '<link rel="stylesheet" href="//fonts.example/x.css">', "//fonts.example/x.css"),
        ("a.html", '<p><img alt="" src="http://pixel.example/1.gif">', "http://pixel.example/1.gif"),
        ("a.css", "@import url('https://fonts.example/x.css');", "https://fonts.example/x.css"),
        ("a.css", '@import "//fonts.example/x.css";', "//fonts.example/x.css"),
        ("a.css", "b { background: url(https://pixel.example/1.gif) }", "https://pixel.example/1.gif"),
        ("a.html", '<a href="https://redis.io">Redis</a><img src="_static/a.png"><script src="x.js"></script>', None),
        ("a.css", "b { background: url(data:image/svg+xml;base64,//aa) } /* https://redis.io */", None),
    ],
)
def test_files_from_other_sites_are_found(build, tmp_path, file, text, loaded):
    (tmp_path / "page").mkdir()
    (tmp_path / "page" / file).write_text(text)
    assert build.foreign(tmp_path) == ([f"page/{file}: {loaded}"] if loaded else [])
