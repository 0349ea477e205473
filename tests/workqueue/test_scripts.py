"""Header and body of every script of the work queue agree."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

TYPES = {"queue": "list", "processing": "list", "item": "string", "lease": "string"}
TEXTS = {
    path.name.removesuffix(".lua"): path.read_text()
    for path in files("delayq.workqueue").joinpath("lua").iterdir()
    if path.name.endswith(".lua")
}
HEADERS = {
    name: " ".join(line.removeprefix("--").strip() for line in re.match(r"(?:--.*\n)+", text)[0].splitlines())
    for name, text in TEXTS.items()
}
each_script = pytest.mark.parametrize("name", sorted(TEXTS))


def keys_of(header):
    """Return the keys that a header declares: those passed once, and those for each id."""
    declared = re.search(r"KEYS: (.*?) ARGV:", header)[1]
    once, _, each = declared.partition("for each id: ")
    parts = [re.findall(r"(\w+) (?:list|string)", text) for text in (once, each)]
    for part, kind in re.findall(r"(\w+) (list|string)", declared):
        assert TYPES[part] == kind
    return parts


def body(name):
    return re.sub(r"(?m)\s*--.*$", "", TEXTS[name])


@each_script
def test_a_header_has_purpose_keys_arguments_reply_and_re_run(name):
    assert re.match(r"[A-Z].+\. KEYS: .+ ARGV: .+ Returns: .+ Re-run: .+\.$", HEADERS[name])
    assert any(keys_of(HEADERS[name]))


@each_script
def test_a_body_builds_no_key_and_is_short(name):
    assert len(TEXTS[name].splitlines()) <= 80
    assert TEXTS[name].isascii()
    assert ".." not in body(name)
    assert "pcall" not in body(name)


@each_script
def test_commands_touch_only_declared_keys(name):
    once, each = keys_of(HEADERS[name])
    known = {*once, *each, "list"} | {"items[n]", "KEYS[1]", "KEYS[2]", "KEYS[n]", "KEYS[index[id]]"}
    known |= {"KEYS[index[id] + 1]", "unpack(leases)", "unpack(items)", "unpack(own_leases)"}
    touched = set(re.findall(r"redis\.call\('\w+', (unpack\(\w+\)|[^,)]+)", body(name)))
    assert touched <= known


@each_script
def test_a_script_that_must_run_when_redis_is_full_begins_with_a_write_that_removes(name):
    writes = re.findall(r"redis\.call\('(SET|LPUSH|RPOP|DEL|LREM|LTRIM)'", body(name))
    assert (writes[0] in {"RPOP", "DEL", "LREM", "LTRIM"} if writes else name in {"counts", "view"}) or name == "add"
