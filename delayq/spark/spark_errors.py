"""Extracts the cause from Spark's errors, which contain the whole traceback of a Python worker."""

from __future__ import annotations

import logging
import os
import re

from delayq import errors
from delayq.errors import DelayqError

_KINDS = {name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, DelayqError)}
_SENTENCE = re.compile(rf"^delayq\.errors\.({'|'.join(_KINDS)}): (.+)$", re.MULTILINE)
_CAUSES = ("The above exception was the direct cause", "During handling of the above exception")
_JAVA_CAUSE = re.compile(r"^(?:Caused by)?: (?:[a-z]\w*\.)*(\S.*?)\s*$", re.MULTILINE)
"""In the trace of a Java error the error itself, and each cause: the last one is the innermost."""
_NO_SOURCE = "[DATA_SOURCE_NOT_FOUND]"
"""The class of an error that tells more than its cause, a Java class that was not found."""
JVM_GONE = (
    "Spark's Java process has ended: it was killed, or ran out of memory"
    " (give it more with --conf spark.driver.memory=4g); run the command again"
)
WORKER_GONE = (
    "a Python worker of Spark was killed, or ran out of memory"
    " (run fewer tasks at a time, as with --master 'local[1]', or free memory); run the command again"
)
_WORKER_GONE = "Python worker exited unexpectedly (crashed)"
_CLASS = re.compile(r"^(?:\w+: )?\[[A-Z_.0-9]+\] ")
_STATE = re.compile(r" SQLSTATE: \w{5}|; line \d+ pos \d+;?$|;$")


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
    """Return in one line why a Spark job failed: delayq's own message, else the innermost cause; then its notes."""
    ours = error_of(error)
    reason = str(ours) if ours is not None else JVM_GONE if is_jvm_gone(error) else _spark_reason(error)
    return "; ".join((reason, *getattr(error, "__notes__", ())))


def is_jvm_gone(error: BaseException) -> bool:
    """Return whether a call failed because the connection to Spark's Java process is gone."""
    if not isinstance(error, OSError | EOFError) and type(error).__name__ != "Py4JNetworkError":
        return False
    trace = error.__traceback__
    while trace is not None and not trace.tb_frame.f_globals.get("__name__", "").startswith("py4j."):
        trace = trace.tb_next
    return trace is not None


def _spark_reason(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    reason = lines[0]
    if _WORKER_GONE in str(error):
        return WORKER_GONE
    if "Traceback (most recent call last):" in str(error):
        # Spark only reports that a worker failed: the last line of its traceback has the reason.
        trace = str(error).partition("Traceback (most recent call last):")[2].splitlines()[1:]
        reason = next((line for line in trace if line and not line[0].isspace()), reason)
    elif causes := _JAVA_CAUSE.findall(str(error)):
        reason = next((one for one in causes if _NO_SOURCE in one), causes[-1])
    return _STATE.sub("", _CLASS.sub("", reason))


def silence_py4j() -> None:
    """Keep py4j and PySpark from printing the traceback of each error that is raised, until the process ends."""
    import pyspark.accumulators
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):  # of every error of SQL, with its trace
        PySparkLogger.getLogger(name).disabled = True
    logging.getLogger().addFilter(_is_not_of_py4j)
    logging.getLogger("py4j").propagate = False
    for name in ("AccumulatorTCPServer", "AccumulatorUnixServer"):
        server = getattr(pyspark.accumulators, name, None)
        if server is not None:
            server.handle_error = lambda *_: None


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """Return whether a record is not one of py4j, which logs some to the root logger."""
    return f"{os.sep}py4j{os.sep}" not in record.pathname
