"""Public names: those of the original Python package, the same for both queues."""

from __future__ import annotations

import inspect

import pytest

from delayq.workqueue import AsyncWorkQueue, Item, KeyPrefix, WorkQueue
from delayq.workqueue.calls import WorkQueueCalls
from delayq.workqueue.keys import WorkQueueKeys
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
"""Methods of the original Python package, with their arguments."""


def methods(kind):
    return {name: member for name, member in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")}


@pytest.mark.table(
    ("kind", "name", "arguments"),
    [(kind, name, arguments) for kind, table in ORIGINAL.items() for name, arguments in table.items()],
)
def test_the_names_of_the_original_exist(kind, name, arguments):
    taken = inspect.signature(getattr(kind, name)).parameters.values()
    positional = [one.name for one in taken if one.kind is one.POSITIONAL_OR_KEYWORD and one.name != "self"]
    assert positional == arguments


@pytest.mark.table("name", sorted(methods(WorkQueue)))
def test_sync_and_async_methods_have_the_same_signatures_and_docstrings(name):
    ours, theirs = methods(WorkQueue)[name], methods(AsyncWorkQueue)[name]
    assert inspect.signature(ours) == inspect.signature(theirs)
    assert inspect.getdoc(ours) == inspect.getdoc(theirs)
    assert inspect.getdoc(ours)
    assert inspect.iscoroutinefunction(theirs) is not name.endswith("_to_pipeline")
    assert set(methods(WorkQueue)) == set(methods(AsyncWorkQueue))


@pytest.mark.parametrize(
    ("run", "names"),
    [
        (lambda calls: calls.add(b"a", b"x", known=False), ["item a", "queue"]),
        (
            lambda calls: calls.claim("s", 1, [b"a", b"b"], 8),
            ["queue", "processing", "item a", "lease a", "item b", "lease b"],
        ),
        (lambda calls: calls.complete(b"a"), ["item a", "processing", "lease a", "queue"]),
        (lambda calls: calls.counts(), ["queue", "processing"]),
        (lambda calls: calls.lease_suspects([b"a", b"b"], "c", 1), ["processing", "lease a", "lease b"]),
        (lambda calls: calls.restore({b"a": 1}), ["queue", "processing", "item a", "lease a"]),
    ],
)
def test_a_call_passes_the_keys_of_the_header(run, names):
    call = run(WorkQueueCalls(WorkQueueKeys(KeyPrefix("{jobs}"))))
    spelled = [name.replace(" ", ":") for name in names]
    assert [key.decode() for key in call.keys] == [f"{{jobs}}:{name}" for name in spelled]
    once, each = keys_of(HEADERS[call.script.name.removeprefix("workqueue/")])
    kinds = [name.split()[0] for name in names]
    assert kinds[: len(once)] == once
    assert kinds[len(once) :] == each * ((len(kinds) - len(once)) // max(1, len(each)))
