"""The protocol of redis-work-queue, so that its clients in other languages share a queue with Python ones.

Keys and commands are those of its version 0.3: `<prefix>:queue`, `<prefix>:processing`, `<prefix>:item:<id>` and
`<prefix>:lease:<id>`. `delayq docs workqueue` lists the guarantees beyond it.
"""

from delayq.workqueue.item import Item
from delayq.workqueue.keys import KeyPrefix
from delayq.workqueue.queue import AsyncWorkQueue, ItemInfo, ItemPage, ItemState, WorkQueue

__all__ = ["AsyncWorkQueue", "Item", "ItemInfo", "ItemPage", "ItemState", "KeyPrefix", "WorkQueue"]
