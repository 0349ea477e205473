"""The test kit for code that uses delayq: a clock to turn, queues of one test, a drain, assertions and faults.

`delayq.testing.pytest_plugin` brings the fixtures into every pytest run; see `delayq docs testing`.
"""

from typing import TYPE_CHECKING

from delayq._lazy import attach

if TYPE_CHECKING:
    from delayq.testing.assertions import assert_nothing_scheduled as assert_nothing_scheduled
    from delayq.testing.assertions import assert_scheduled as assert_scheduled
    from delayq.testing.clock import Clock as Clock
    from delayq.testing.clock import ruling as ruling
    from delayq.testing.deliveries import Delivered as Delivered
    from delayq.testing.drain import drain as drain
    from delayq.testing.fault_injection import Crash as Crash
    from delayq.testing.fault_injection import crash as crash
    from delayq.testing.fault_injection import lose_replies as lose_replies
    from delayq.testing.fault_injection import restart as restart
    from delayq.testing.fault_injection import unreachable as unreachable
    from delayq.testing.queue_factory import AsyncQueues as AsyncQueues
    from delayq.testing.queue_factory import Queues as Queues

__all__, __getattr__, __dir__ = attach(__name__)
