"""The test kit for code that uses delayq: a clock to turn, queues of one test, a drain, assertions and faults.

`delayq.testing.plugin` brings the fixtures into every pytest run; see `delayq docs testing`.
"""

from typing import TYPE_CHECKING

from delayq.lazy import attach

if TYPE_CHECKING:
    from delayq.testing.clock import Clock as Clock
    from delayq.testing.clock import ruling as ruling
    from delayq.testing.delivered import Delivered as Delivered
    from delayq.testing.draining import drain as drain
    from delayq.testing.faults import Crash as Crash
    from delayq.testing.faults import crash as crash
    from delayq.testing.faults import lose_replies as lose_replies
    from delayq.testing.faults import restart as restart
    from delayq.testing.faults import unreachable as unreachable
    from delayq.testing.place import AsyncQueues as AsyncQueues
    from delayq.testing.place import Queues as Queues
    from delayq.testing.scheduled import assert_nothing_scheduled as assert_nothing_scheduled
    from delayq.testing.scheduled import assert_scheduled as assert_scheduled

_HOMES = {
    # time
    "Clock": "delayq.testing.clock",
    "ruling": "delayq.testing.clock",
    "Delivered": "delayq.testing.delivered",
    "drain": "delayq.testing.draining",
    # queues
    "AsyncQueues": "delayq.testing.place",
    "Queues": "delayq.testing.place",
    # what is there
    "assert_nothing_scheduled": "delayq.testing.scheduled",
    "assert_scheduled": "delayq.testing.scheduled",
    # faults
    "Crash": "delayq.testing.faults",
    "crash": "delayq.testing.faults",
    "lose_replies": "delayq.testing.faults",
    "restart": "delayq.testing.faults",
    "unreachable": "delayq.testing.faults",
}

__all__ = list(_HOMES)
__getattr__, __dir__ = attach(__name__, _HOMES)
