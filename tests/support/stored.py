"""All that a server holds, but for what calls have left in their slots."""

from __future__ import annotations

from typing import Any

import redis


def all_but_slots(client: redis.Redis) -> dict[bytes, Any]:
    """Return what is stored under each key; of a `meta` all but the remembered replies of calls."""
    return {
        key: {name: text for name, text in client.hgetall(key).items() if b"." not in name}
        if key.endswith(b":meta")
        else client.dump(key)
        for key in client.scan_iter()
    }
