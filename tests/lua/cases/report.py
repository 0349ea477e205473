"""`report`: the progress of a leased message stands last among its attributes."""

from __future__ import annotations

from delayq.broker.requests import Receipt
from tests.lua.cases.states import CROWD, LEASED, STATES
from tests.support.scripts import Case, T, World, calls


def _reported(text: str, world: World = LEASED) -> World:
    return world.but(attributes=world.attributes | {"a": text}, meta=world.meta | {"schema": 2})


def _call(token: int = T - 7) -> object:
    return calls.report(Receipt("a", token), "Nw==")


CASES = [
    *(
        Case(
            name,
            world + CROWD,
            _call(),
            "1" if name == "leased" else "0",
            _reported("name=a progress=Nw==", world + CROWD) if name == "leased" else world + CROWD,
        )
        for name, world in STATES.items()
    ),
    Case("the receipt of an earlier delivery", LEASED, _call(T - 9), "0", LEASED),
    Case("the last report counts", _reported("name=a progress=OA=="), _call(), "1", _reported("name=a progress=Nw==")),
    Case("nothing but progress", _reported("progress=OA=="), _call(), "1", _reported("progress=Nw==")),
    Case("no attributes before", LEASED.but(attributes={}), _call(), "1", _reported("progress=Nw==")),
]
