"""The header and the body of every script agree with each other and with the Python that calls them."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from pathlib import Path

import pytest

import delayq
from delayq.broker.keys import Keys
from delayq.broker.scripts import script as load
from delayq.testing.torture.disturbing.faults import PLANTED_TYPES
from delayq.values.states import TRANSITIONS
from tests.lua.tables import LUA, MUTATING, SCRIPTS, TEXTS

PARTS = [part.name for part in fields(Keys)]
TYPES = dict(
    re.findall(r'^    (\w+): str\n    """(zset|list|set|hash|stream): ', inspect.getsource(Keys), re.MULTILINE)
)
"""The Redis type of each key, by the docstrings of their class."""
LABELS = ["KEYS", "ARGV", "Returns", "Re-run", "Runs", "Uses"]
READING = (
    {
        "EXISTS",
        "HEXISTS",
        "HGET",
        "HGETALL",
        "HKEYS",
        "HLEN",
        "HMGET",
        "LINDEX",
        "LLEN",
        "LRANGE",
        "SCARD",
        "SISMEMBER",
    }
    | {"ZSCAN", "HSCAN", "HSTRLEN", "SSCAN", "ZCARD", "ZCOUNT", "ZRANGE", "ZRANGEBYLEX", "ZRANGEBYSCORE"}
    | {
        "ZRANK",
        "ZSCORE",
    }
)
BOUND_AS = {
    "now": "override",
    "retries": "retry_count",
    "headers": "header_text",
    "attributes": "attribute_text",
    "refusals": "texts",
    "next start": "next_start",
}
"""Arguments with another name in the body, where a key or a derived value has the name of the header."""

MAY_FAIL = {"keep_presence", "ends", "configure", "lasting", "log", "log_bound", "numbers", "send_one"}
"""Files with commands that may fail: whether entries are numbered is tried out, a send is taken back, a full Redis
stops no presence; no log, counter or TTL stops a call."""
REPEATABLE = {
    "wake": "pushes nothing while a wake-up waits.",
    "keep_presence": "stores the same again.",
    "configure": "does the same again.",
    "remove": "deletes what is there, if it is empty still.",
    "moved": "deletes what is left.",
    "file_spilled": "changes nothing more.",
    "merge_files": "changes nothing more.",
    "drop_changes": "deletes nothing more.",
    "repartition": "changes nothing if the epoch is higher; a caller that got no reply reads what is there.",
}
"""Scripts that write without a slot, and what they do when repeated."""


def source(name: str) -> str:
    return TEXTS[f"{name}.lua"]


def header(name: str) -> dict[str, str]:
    """Return the paragraphs of a header by their labels; what comes before the first is the purpose."""
    lines = []
    for line in source(name).splitlines():
        if not line.startswith("--"):
            break
        lines.append(line.removeprefix("--").strip())
    labels = "|".join(LABELS)
    purpose, *rest = re.split(rf"\s*\b({labels}): ", " ".join(lines))
    return {"purpose": purpose} | dict(zip(rest[::2], rest[1::2], strict=True))


def body(name: str) -> str:
    """Return the code of a script: its lines without comments."""
    return "\n".join(re.sub(r"(^|\s)--.*", "", line) for line in source(name).splitlines())


def declared_keys(name: str) -> list[tuple[str, str]]:
    return [(part, kind) for part, kind in (entry.split(" ") for entry in header(name)["KEYS"].split(", "))]


def declared_arguments(name: str) -> tuple[list[str], bool]:
    """Return the names of the leading arguments, and whether more of them follow."""
    text = re.sub(r" ?\([^()]*\)", "", header(name)["ARGV"])
    leading, then, _ = text.partition("then ")
    return [entry.strip() for entry in leading.split(",") if entry.strip()], bool(then)


def bound(name: str, array: str) -> dict[int, str]:
    """Return the names that a body gives to the elements of KEYS or ARGV, by position."""
    found: dict[int, str] = {}
    for names, values in re.findall(
        r"^local ([\w, ]+?)\s*=\s*(.+)$",
        re.sub(r",\s*\n\s*", ", ", re.sub(r"=\s*\n\s*", "= ", body(name))),
        re.MULTILINE,
    ):
        targets = names.split(", ")
        if values == f"unpack({array})":
            found |= dict(enumerate(targets, 1))
        elif match := re.fullmatch(rf"unpack\({array}, (\d+), (\d+)\)", values):
            first, last = int(match[1]), int(match[2])
            assert last - first + 1 == len(targets)
            found |= dict(enumerate(targets, first))
        else:
            places = re.findall(rf"^(?:tonumber\()?{array}\[(\d+)\]\)?$", values.replace(", ", "\n"), re.MULTILINE)
            if len(places) == len(targets):
                found |= {int(place): target for place, target in zip(places, targets, strict=True)}
    return found


def functions(fragment: str) -> set[str]:
    return set(re.findall(r"^local function (\w+)", TEXTS[f"lib/{fragment}.lua"], re.MULTILINE))


SIGNATURES = {
    name: re.split(r",\s+", parameters)
    for file, text in TEXTS.items()
    if file.startswith("lib/")
    for name, parameters in re.findall(r"^local function (\w+)\(([^)]*)\)", text, re.MULTILINE)
}
FRAGMENTS = {name: functions(name) for name in re.findall(r"lib/(\w+)", " ".join(TEXTS))}
LOG_CALL = re.compile(r"\b(log|log_deaths|log_status|log_groups)\(")
LOGGING = [*(name for name in SCRIPTS if "log" in header(name).get("Uses", "").split(", ")), "streams/relay"]
"""The scripts that write to the event log."""


@pytest.mark.table("name", SCRIPTS)
def test_header_has_all_sections_in_order(name):
    sections = header(name)
    assert re.fullmatch(r"[A-Z][^.]*\.( .*\.)?", sections["purpose"])
    labels = [label for label in sections if label != "purpose"]
    assert labels == [label for label in LABELS if label in labels]
    assert {*LABELS[:4]} <= set(labels)
    assert all(sections.values())


@pytest.mark.table("name", SCRIPTS)
def test_declared_keys_match_parts_types_and_order_of_the_body(name):
    declared = declared_keys(name)
    assert [part for part, _ in declared] == list(load(name).parts)
    assert [(part, TYPES[part]) for part, _ in declared] == declared
    assert len({part for part, _ in declared}) == len(declared)
    names = bound(name, "KEYS")
    if name == "purge":  # which deletes most of its keys without naming them
        assert "unpack(KEYS, 1, 21)" in body(name)
        assert [names[at] for at in range(22, 26)] == [part for part, _ in declared[21:]]
        assert declared[6][0] == "messages"
        assert set(re.findall(r"KEYS\[(\d+)\]", body(name))) == {"7"}
    elif name == "remove":  # which deletes all of them
        assert list(names.values()) == [part for part, _ in declared[:5]]
        assert {part for part, _ in declared} == set(TYPES)
        assert body(name).count("KEYS") == body(name).count("unpack(KEYS") == 2
    elif "Runs" in header(name):  # the keys that it names, then those that only the other script uses
        own = list(names.values())
        others = [part for one in header(name)["Runs"].split(", ") for part in load(one).parts]
        assert own == [part for part, _ in declared[: len(own)]]
        assert {part for part, _ in declared[len(own) :]} == {*others} - {*own}
    elif len(declared) == 1:
        assert set(re.findall(r"KEYS.{3}", body(name))) == {"KEYS[1]"}
    else:
        assert list(names.values()) == [part for part, _ in declared]
        assert len(re.findall(r"\bKEYS\b", body(name))) == 1


@pytest.mark.table("name", SCRIPTS)
def test_arguments_are_bound_in_the_order_of_the_header(name):
    declared, more = declared_arguments(name)
    names = bound(name, "ARGV")
    if declared == ["none"]:
        assert "ARGV" not in body(name)
        return
    if declared == ["now"]:
        rest = {"npack(ARGV, 2)"} if more else set()
        assert set(re.findall(r".{6}ARGV.{4}", body(name))) == {"clock(ARGV[1])"} | rest
        return
    if declared == ["ids"]:
        assert set(re.findall(r"ARGV(?: do|.{3})", body(name))) == {"ARGV do", "ARGV[i]"}
        return
    assert sorted(names) == list(range(1, len(declared) + 1))
    for place, argument in enumerate(declared, 1):
        assert names[place] in {argument, BOUND_AS.get(argument)}
    if name in MUTATING:
        assert declared[:3] == ["slot", "sequence", "now"]
        begins = r"^local past(, .+)? = (answered\(meta, slot|begun\(meta, done, slot|past_of\(kept\[1\]), sequence\)$"
        assert re.search(begins, body(name), re.MULTILINE)
    assert more is ("#ARGV" in body(name))
    if more:
        starts = set(re.findall(r"for i = (\d+), #ARGV", body(name)))
        assert starts == {str(len(declared) + 1)}


@pytest.mark.table("name", SCRIPTS)
def test_script_uses_exactly_the_fragments_it_declares(name):
    own = set(re.findall(r"local function (\w+)", body(name)))
    named = header(name).get("Uses", "").split(", ") if "Uses" in header(name) else []
    texts = [body(name), *(TEXTS[f"lib/{fragment}.lua"] for fragment in named)]
    called = set(re.findall(r"(?<![.\w])(\w+)\(", "\n".join(texts))) - own
    used = {fragment for fragment, offered in FRAGMENTS.items() if offered & called}
    assert sorted(named) == sorted(used)


@pytest.mark.table("name", SCRIPTS)
def test_header_documents_repeated_calls(name):
    rerun = header(name)["Re-run"]
    if name in REPEATABLE:
        assert rerun == REPEATABLE[name]
    elif name not in MUTATING:
        assert rerun == "reads only."
        assert set(re.findall(r"redis\.call\('(\w+)'", body(name))) <= READING
    elif name == "turn":
        claimed = "what is still leased under the remembered tokens, with its lease renewed"
        assert (
            rerun
            == f"returns the same statuses, and {claimed}; a call that has settled and claimed nothing runs again."
        )
    elif name in {"ready_to_unack", "pending_to_unack"}:
        claimed = "returns what is still leased under the remembered tokens, with its lease renewed"
        looks = "; a call that claimed nothing runs again" if name == "pending_to_unack" else ""
        assert rerun == f"{claimed}{looks}."
    else:
        again = name == "unack_to_retry"
        looks = "; a call that moved nothing is not remembered and runs again" if again else ""
        looks += (
            "; a call that moved nothing, or finds the queue empty, runs again" if name == "pending_to_ready" else ""
        )
        looks += (
            "; a call that only inspects is not remembered and runs again"
            if "fix" in bound(name, "ARGV").values()
            else ""
        )
        looks += "; an epoch that ended before is not counted again" if name == "end_run" else ""
        assert rerun == f"returns the same reply{looks}."


@pytest.mark.table("name", SCRIPTS)
def test_commands_touch_only_declared_keys(name):
    text = body(name)
    keys = {part for part, _ in declared_keys(name)}
    # Loop variables, tables and parameters that hold keys count as these keys.
    for variable, values in re.findall(r"for _, (\w+) in ipairs\(\{([^}]*)\}\)", text):
        assert set(values.split(", ")) <= keys
        keys.add(variable)
    for variable, values in re.findall(r"^local (\w+) = \{(\w+ = \w+(?:,\s+\w+ = \w+)*)\}", text, re.MULTILINE):
        if set(re.findall(r" = (\w+)", values)) <= keys:
            keys |= {f"{variable}[state]", f"{variable}[part]"}
    for function, parameter in re.findall(r"local function (\w+)\((\w+)", text):
        given = set(re.findall(rf"(?<!function )\b{function}\((\w+),", text))
        if given and given <= keys:
            keys.add(parameter)
    touched = set(re.findall(r"redis\.call\('\w+', ([\w\[\]]+)", text))
    unpacked = set(re.findall(r"redis\.call\('\w+', (unpack\([^)]*\))", text))
    assert text.count("redis.call(") == len(re.findall(r"redis\.call\('[A-Z]+'", text))
    assert touched - keys <= {"purge": {"KEYS[7]", "unpack"}, "remove": {"unpack"}}.get(name, set())
    assert unpacked <= {"purge": {"unpack(KEYS, 1, 21)"}, "remove": {"unpack(KEYS)"}}.get(name, set())


@pytest.mark.long
@pytest.mark.table("name", SCRIPTS)
def test_fragments_are_called_with_the_keys_they_declare(name):
    declared = [part for part, _ in declared_keys(name)]
    text = re.sub(r"KEYS\[(\d+)\]", lambda place: declared[int(place[1]) - 1], body(name))
    for function, asked in SIGNATURES.items():
        for given in re.findall(rf"(?<!function )\b{function}\(([^()]*)\)", text):
            arguments = re.split(r",\s+", given)
            if asked[-1] == "...":  # for what is no key
                arguments[len(asked) - 1 :] = ["..."]
            for parameter, argument in zip(asked, arguments, strict=True):
                assert parameter == argument or parameter not in PARTS, f"{function}({given})"


@pytest.mark.table("name", sorted(FRAGMENTS))
def test_fragments_touch_only_their_parameters(name):
    text = TEXTS[f"lib/{name}.lua"]
    parameters = {
        parameter
        for given in re.findall(r"local function \w+\(([^)]*)\)", text)
        for parameter in re.split(r",\s+", given)
    }
    assert set(re.findall(r"redis\.p?call\('\w+', (\w+)", text)) <= parameters
    assert "KEYS" not in text
    assert "ARGV" not in text


@pytest.mark.table("path", sorted(LUA.rglob("*.lua")), ids=lambda path: path.stem)
def test_scripts_build_no_keys_and_are_short(path):
    text = path.read_text()
    assert len(text.splitlines()) <= 100
    assert path.stem in MAY_FAIL or "redis.pcall" not in text
    code = re.sub(r"(?m)(^|\s)--.*", "", text)
    assert not re.search(r"KEYS[^\n]*\.\.|\.\.[^\n]*KEYS", code)
    for part in PARTS:
        assert not re.search(rf"(?<![.\w]){part}\s*\.\.|\.\.\s*{part}(?![\w.])", code)


@pytest.mark.table("name", LOGGING)
def test_log_is_the_last_that_a_script_writes(name):
    own = re.sub(r"(?m)(^|\s)--.*", "", load(name).text.decode().split("-- KEYS:")[1])
    functions = re.findall(r"(?ms)^local function .*?^end$", own)
    assert not [text for text in functions if LOG_CALL.search(text) and "redis." in text]
    main = re.sub(r"(?ms)^local function .*?^end$", "", own)
    after = main[LOG_CALL.search(main).start() :]
    assert set(re.findall(r"([\w.]+)\(", after)) <= {
        "log",
        "log_deaths",
        "log_status",
        "log_groups",
        "bound_log",
        "math.floor",
        "unmarked",
    }
    assert re.search(r"\nreturn \w+\s*$", after)


def test_every_fragment_is_used():
    assert {name for script in SCRIPTS for name in header(script).get("Uses", "").split(", ")} - {""} == set(FRAGMENTS)


def test_every_transition_has_a_script():
    assert {transition.script for transition in TRANSITIONS} <= set(MUTATING)


def test_every_call_runs_the_script_of_its_name():
    """Those of `Calls`, and those of the capabilities: `limit_call` runs `limit`."""
    called = []
    for path in Path(delayq.__file__).parent.rglob("*.py"):
        text = path.read_text("utf-8")
        body = r'\s*"(\w+)"'
        called += re.findall(
            rf"^    def (\w+)\((?:(?!    def ).)*?self\.script\({body}", text, re.MULTILINE | re.DOTALL
        )
        called += re.findall(rf"^def (\w+)_call\((?:(?!^def ).)*?calls\.script\({body}", text, re.MULTILINE | re.DOTALL)
    assert sorted(called) == [(name, name) for name in SCRIPTS]


def test_torture_plants_values_of_the_types_of_the_keys():
    assert {part: kind for part, kind in TYPES.items() if kind != "hash"} == PLANTED_TYPES
