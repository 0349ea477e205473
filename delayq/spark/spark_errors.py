"""What went wrong, out of what Spark makes of it: it reports an error of a Python worker by its whole traceback."""

from __future__ import annotations

import re

from delayq import errors
from delayq.errors import DelayqError

_KINDS = {name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, DelayqError)}
_SENTENCE = re.compile(rf"^delayq\.errors\.({'|'.join(_KINDS)}): (.+)$", re.MULTILINE)
_CAUSES = ("The above exception was the direct cause", "During handling of the above exception")
_CLASS = re.compile(r"^\[[A-Z_.0-9]+\] ")
_STATE = re.compile(r" SQLSTATE: \w{5};?$")


def error_of(error: BaseException) -> DelayqError | None:
    """Return the error of delayq that made a Spark job fail; None if it was another."""
    if isinstance(error, DelayqError):
        return error
    text = str(error)
    for found in _SENTENCE.finditer(text):
        # What merely led to an error comes before it, and is followed by a line that says so.
        if not text[found.end() :].lstrip().startswith(_CAUSES):
            return _KINDS[found[1]](found[2].strip())
    return None


def reason_of(error: BaseException) -> str:
    """Return in one line what made a Spark job fail: delayq's own sentence, else the first line of what Spark says."""
    ours = error_of(error)
    if ours is not None:
        return str(ours)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    # Where Spark only says that a worker failed, the last line of its traceback tells what happened there.
    told = lines[0]
    if "Traceback (most recent call last):" in str(error):
        trace = str(error).partition("Traceback (most recent call last):")[2].splitlines()[1:]
        told = next((line for line in trace if line and not line[0].isspace()), told)
    return _STATE.sub("", _CLASS.sub("", told))
