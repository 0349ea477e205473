"""`ack_some`: of the payloads that a leased message has collected, some remain."""

from __future__ import annotations

from typing import Any

from delayq.broker.requests import Receipt
from delayq.worker.delivery.collected_ack import ack_some_call
from tests.lua.cases.states import CROWD, LEASED, STATES
from tests.support.scripts import Case, T, calls


def _call(token: int = T - 7) -> Any:
    return ack_some_call(calls, Receipt("a", token), b"[2]")


CASES = [
    *(
        Case(
            name,
            world + CROWD,
            _call(),
            "1" if name == "leased" else "0",
            (world.but(messages={"a": "[2]"}) if name == "leased" else world) + CROWD,
        )
        for name, world in STATES.items()
    ),
    Case("the receipt of an earlier delivery", LEASED, _call(T - 9), "0", LEASED),
    Case("without a payload it is no message", LEASED.but(messages={}), _call(), "0", LEASED.but(messages={})),
]
