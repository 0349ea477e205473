"""The faces: the names of the original's Python package, and the same for both."""

from __future__ import annotations

import inspect

import pytest

from delayq.workqueue import AsyncWorkQueue, Item, KeyPrefix, WorkQueue
from delayq.workqueue.calls import add, claim, complete, counts, hold, restore
from delayq.workqueue.keys import Keys
from tests.workqueue.test_scripts import HEADERS, keys_of

ORIGINAL = {
    KeyPrefix: {"of": ["name"], "concat": ["prefix", "name"]},
    Item: {
        "from_dict": ["loaded"],
        "parse": ["s"],
        "from_json_data": ["data", "id"],
        "data": [],
        "data_json": [],
        "id": [],
    },
    WorkQueue: {
        "add_item": ["db", "item"],
        "add_unique_item_to_pipeline": ["pipeline", "item"],
        "add_unique_item": ["db", "item"],
        "queue_len": ["db"],
        "processing": ["db"],
        "lease": ["db", "lease_secs", "block", "timeout"],
        "complete": ["db", "item"],
        "light_clean": ["db"],
        "deep_clean": ["db"],
    },
}
"""What the original's Python package has: methods and their arguments."""


def methods(kind):
    return {name: member for name, member in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")}


@pytest.mark.parametrize(
    ("kind", "name", "arguments"),
    [(kind, name, arguments) for kind, table in ORIGINAL.items() for name, arguments in table.items()],
)
def test_what_the_original_has_is_called_alike(kind, name, arguments):
    taken = inspect.signature(getattr(kind, name)).parameters.values()
    positional = [one.name for one in taken if one.kind is one.POSITIONAL_OR_KEYWORD and one.name != "self"]
    assert positional == arguments


@pytest.mark.parametrize("name", sorted(methods(WorkQueue)))
def test_twins_take_the_same_and_say_the_same(name):
    ours, theirs = methods(WorkQueue)[name], methods(AsyncWorkQueue)[name]
    assert inspect.signature(ours) == inspect.signature(theirs)
    assert inspect.getdoc(ours) == inspect.getdoc(theirs)
    assert inspect.getdoc(ours)
    assert inspect.iscoroutinefunction(theirs) is not name.endswith("_to_pipeline")
    assert set(methods(WorkQueue)) == set(methods(AsyncWorkQueue))


@pytest.mark.parametrize(
    ("run", "names"),
    [
        (lambda keys: add(keys, b"a", b"x", known=False), ["item a", "queue"]),
        (
            lambda keys: claim(keys, "s", 1, [b"a", b"b"], 8),
            ["queue", "processing", "item a", "lease a", "item b", "lease b"],
        ),
        (lambda keys: complete(keys, b"a"), ["item a", "processing", "lease a", "queue"]),
        (lambda keys: counts(keys), ["queue", "processing"]),
        (lambda keys: hold(keys, [b"a", b"b"], "c", 1), ["processing", "lease a", "lease b"]),
        (lambda keys: restore(keys, {b"a": 1}), ["queue", "processing", "item a", "lease a"]),
    ],
)
def test_a_call_gives_its_script_the_keys_that_the_header_asks_for(run, names):
    call = run(Keys(KeyPrefix("{jobs}")))
    spelled = [name.replace(" ", ":") for name in names]
    assert [key.decode() for key in call.keys] == [f"{{jobs}}:{name}" for name in spelled]
    once, each = keys_of(HEADERS[call.script.name.removeprefix("workqueue/")])
    kinds = [name.split()[0] for name in names]
    assert kinds[: len(once)] == once
    assert kinds[len(once) :] == each * ((len(kinds) - len(once)) // max(1, len(each)))
