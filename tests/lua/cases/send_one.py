"""`send_one`: every case of `send` with one message and no options, which must end the same."""

from __future__ import annotations

from dataclasses import replace

from delayq.broker.requests import Outgoing
from tests.lua.cases import send
from tests.support.scripts import Case, calls

_PLAIN = ["0", "0", ""]
"""Neither replacing, nor limited, nor in a run."""


def _alone(case: Case) -> list[Case]:
    _, replacing, limit, run, stride, *columns = case.call.args
    if [replacing, limit, run] != _PLAIN or len(columns) != stride:
        return []
    row = (*columns, b"", b"")[:6]
    return [replace(case, call=calls.send_one(Outgoing(*row)))]


CASES = [alone for case in send.CASES for alone in _alone(case)]
