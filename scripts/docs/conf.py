"""Configuration of Sphinx for the site of the handbook; `make docs` builds it."""

from __future__ import annotations

import re
from typing import Any

import delayq

project = "delayq"
author = "delayq contributors"
version = release = delayq.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
root_doc = "index"

# Pages link to headings as GitHub names them.
myst_heading_anchors = 6
suppress_warnings = ["misc.highlighting_failure"]  # such as templates in SQL
default_role = "code"

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
maximum_signature_line_length = 80
add_module_names = False
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = f"delayq {version}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_use_index = html_domain_indices = False
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False

MARKED = re.compile(r"(?<![`:])`([^`]+)`(?!`)(?=(\w?))|(?<=\w)_(?=\W|$)")
"""Code in a docstring, marked as in Markdown, and a _ that reStructuredText would take for a link."""
NAME = re.compile(r"[A-Za-z_][\w.]*")


def read_markdown(_app: Any, _what: str, _name: str, _object: object, _options: object, lines: list[str]) -> None:
    """Turn the Markdown of a docstring into reStructuredText: code, and links for names that are documented."""
    paragraphs = []
    for paragraph in "\n".join(lines).split("\n\n"):
        code = paragraph.startswith("    ")
        paragraphs.append(f"::\n\n{paragraph}" if code else MARKED.sub(_marked, paragraph))
    lines[:] = "\n\n".join(paragraphs).split("\n")


def _marked(found: re.Match[str]) -> str:
    if not found[1]:
        return "\\_"
    name = found[1].removesuffix("()")
    code = f":py:obj:`{name}`" if NAME.fullmatch(name) else f"``{found[1]}``"
    return f"{code}\\ " if found[2] else code  # such as `Message`s


def setup(app: Any) -> None:
    """Connect what Sphinx does not do by itself."""
    app.connect("autodoc-process-docstring", read_markdown)
