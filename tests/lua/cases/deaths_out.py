"""`deaths_out`: entries of the dead letter leave a partition."""

from __future__ import annotations

from delayq.broker.requests import ScriptCall
from delayq.broker.move_calls import SentOff, deaths_out_call
from tests.lua.cases.moving import ON_ITS_WAY, TARGET, packed, sent_off
from tests.lua.cases.states import CROWD, DEAD, GONE, PENDING, with_meta
from tests.support.scripts import NOW, Case, T, World, calls

ENTRY = f"a:{T - 7}"
STORED = f"2 1 {NOW - 500} {NOW - 100} 12 4 2 6\nno such useroopshaname=aA"
_OTHER = World(
    dead={"a:T-20": -200}, dead_messages={"a:T-20": DEAD.dead_messages["a:T-7"]._replace(died=-200)}, dead_ids={}
)
_TWO = with_meta(DEAD, _OTHER).but(dead_ids={"a": "T-20 T-7"})


def out(*entries: str) -> ScriptCall[SentOff]:
    return deaths_out_call(calls, TARGET, entries)


def batch(*entries: str, died: int = -100) -> World:
    """Return what `moving` has of entries that have left."""
    return sent_off("".join(packed(entry, NOW + died, STORED.replace(str(NOW - 100), str(NOW + died))) for entry in entries), "deaths")


CASES = [
    Case("one", DEAD + CROWD, out(ENTRY), ON_ITS_WAY, GONE + CROWD + batch(ENTRY)),
    Case("one of two of an id", _TWO, out(ENTRY), ON_ITS_WAY, with_meta(GONE, _OTHER).but(dead_ids={"a": "T-20"}) + batch(ENTRY)),
    Case("it is gone", GONE, out(ENTRY), SentOff("0", []), GONE),
    Case("twice", DEAD, out(ENTRY, ENTRY), SentOff("10", [T]), GONE + batch(ENTRY)),
    Case("without its message", DEAD.but(dead_messages={}), out(ENTRY), SentOff("0", []), DEAD.but(dead_messages={})),
    Case("a message of the same id stays", with_meta(DEAD, PENDING), out(ENTRY), ON_ITS_WAY,
         with_meta(PENDING, GONE) + batch(ENTRY)),
]
