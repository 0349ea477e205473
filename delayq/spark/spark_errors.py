"""Extracts the cause from Spark's errors, which contain the whole traceback of a Python worker."""

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
    """Return the delayq error that made a Spark job fail; None if it was another error."""
    if isinstance(error, DelayqError):
        return error
    text = str(error)
    for match in _SENTENCE.finditer(text):
        # The cause of an error is printed before it, followed by a line that says so: skip causes.
        if not text[match.end() :].lstrip().startswith(_CAUSES):
            return _KINDS[match[1]](match[2].strip())
    return None


def reason_of(error: BaseException) -> str:
    """Return in one line why a Spark job failed: delayq's own message, else the first line of Spark's."""
    ours = error_of(error)
    if ours is not None:
        return str(ours)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    # If Spark only reports that a worker failed, the last line of its traceback has the reason.
    reason = lines[0]
    if "Traceback (most recent call last):" in str(error):
        trace = str(error).partition("Traceback (most recent call last):")[2].splitlines()[1:]
        reason = next((line for line in trace if line and not line[0].isspace()), reason)
    return _STATE.sub("", _CLASS.sub("", reason))
