"""What an error of Redis or of a connection means: whether a later try may succeed, and what the caller gets."""

from __future__ import annotations

import re
import ssl
from typing import Any

from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    MovedError,
    NoPermissionError,
    NoScriptError,
    RedisError,
    ResponseError,
)
from redis.exceptions import TimeoutError as RedisTimeoutError

from delayq.broker.requests import RedisCommand, ScriptCall
from delayq.broker.transport.exchange import NotConnectedError, PendingRequest, ProviderError
from delayq.errors import (
    CannotConnectError,
    DelayqError,
    OutcomeUnknown,
    QueueFullError,
    ServerError,
    UnavailableError,
    short_repr,
)

# Errors by their texts, or by the classes of redis-py, which takes the first word off the text of such an error.
_TEMPORARY = re.compile(
    r"\b(LOADING|BUSY|TRYAGAIN|CLUSTERDOWN|READONLY|MASTERDOWN|NOREPLICAS|UNBLOCKED)\b|loading the dataset"
    r"|^(ReadOnly|TryAgain|ClusterDown|MasterDown)Error "
)
_OUT_OF_MEMORY = re.compile(r"\bOOM\b|used memory > 'maxmemory'|^OutOfMemoryError ")
_NO_PERMISSION = re.compile(r"can't run this command.*@user_script:(\d+)|@user_script:(\d+).*can't run this command")
_NO_EVAL = re.compile(r"permissions to run the 'eval' command")
_CLIENT = re.compile(r"<redis\..*?> - ")
"""How redis-py shows a client in front of a Sentinel's error: half a line of nested names."""
_TLS_INTERRUPTED = ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError, ssl.SSLWantReadError
_FILE_ERRORS = FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError


def connection_error(error: Exception, *, tls: bool) -> Exception:
    """Return the error of a connection that could not be made; `tls` if it is encrypted.

    It is a `CannotConnectError` if another try has the same result until somebody changes something: the server
    refuses the login or an option, or TLS cannot begin. Anything else may pass: a busy or full server, a name that is
    not known yet, a provider of credentials that fails.
    """
    if isinstance(error, BusyLoadingError) or (isinstance(error, ResponseError) and _is_passing(error)):
        return error
    text = _CLIENT.sub("", str(error)) or type(error).__name__
    made: Exception = NotConnectedError(text)
    if not isinstance(error, RedisError | OSError):
        made = ProviderError(f"{type(error).__name__}: {text}")
    elif isinstance(error, ResponseError | AuthenticationError):
        made = CannotConnectError(text)
    elif tls and (reason := _tls_error(error)):
        made = CannotConnectError(f"{text} ({reason})")
    made.__cause__ = error
    return made


def _tls_error(error: BaseException | None) -> str:
    """Return why TLS cannot begin; '' if that is not why a connection could not be made."""
    while error is not None:
        if isinstance(error, ssl.SSLError) and not isinstance(error, _TLS_INTERRUPTED):
            return "TLS failed"
        if isinstance(error, _FILE_ERRORS):
            return "a file for TLS cannot be read"
        error = error.__cause__ or error.__context__
    return ""


def is_lost(error: Exception) -> bool:
    """Return whether the reply was lost, so that the outcome is unknown. After a refusal it is known."""
    return not isinstance(error, NotConnectedError | CannotConnectError | BusyLoadingError | ResponseError)


def is_cut(error: Exception) -> bool:
    """Return whether the server, or the network, has closed a connection on which a reply was awaited."""
    return is_lost(error) and not isinstance(error, RedisTimeoutError | TimeoutError)


def is_temporary(sent: PendingRequest, error: Exception) -> bool:
    """Return whether the same request may succeed later, so that it is sent again."""
    if isinstance(error, NoScriptError) or not isinstance(error, ResponseError):
        return True
    if _is_out_of_memory(error):
        # Only what adds to the queue waits for memory: to hold back a claim or a settlement would keep it full.
        return isinstance(sent.request, ScriptCall) and sent.name == "send"
    return _is_passing(error) or (sent.with_text and _NO_EVAL.search(str(error)) is not None)


def _is_passing(error: Exception) -> bool:
    return _TEMPORARY.search(_described(error)) is not None


def _is_out_of_memory(error: Exception) -> bool:
    return _OUT_OF_MEMORY.search(_described(error)) is not None


def _described(error: Exception) -> str:
    return f"{type(error).__name__} {error}"


def final_error(one: PendingRequest, error: Exception, at: str) -> Exception:
    """Return the error of a request that had no reply before the deadline; `at` names the server."""
    if one.maybe_executed and one.slot:
        return OutcomeUnknown(f"{one.name}: Redis stopped answering; it may or may not have been carried out ({error})")
    # The name of a plain command, such as those that open a queue, tells a user nothing.
    what = f"{one.name} was not carried out: " if isinstance(one.request, ScriptCall) else ""
    if isinstance(error, CannotConnectError):
        final: Exception = CannotConnectError(f"{what}cannot connect to Redis{at}: {error}")
        final.__cause__ = error.__cause__
        return final
    if isinstance(error, ResponseError) and _is_out_of_memory(error):
        return error
    state = "is not ready" if isinstance(error, ResponseError | BusyLoadingError) else "cannot be reached"
    reason = f"{error}"
    if one.least and is_cut(error):
        reason += " Perhaps its client-output-buffer-limit is too small for the reply."
    return UnavailableError(f"{what}Redis {state}{at}: {reason}")


def read_reply(sent: PendingRequest) -> Any:
    """Return the parsed reply of a request, or the `DelayqError` it failed with."""
    reply = sent.reply
    if isinstance(reply, Exception):
        if isinstance(reply, DelayqError):
            return reply
        expects = sent.request.expects if isinstance(sent.request, RedisCommand) else ()
        code = "NOPERM " if isinstance(reply, NoPermissionError) else ""  # redis-py takes it off
        if not f"{code}{reply}".startswith(expects):
            return _refusal(sent, reply)
    elif reply == b"" and isinstance(sent.request, ScriptCall):
        return OutcomeUnknown(f"{sent.name}: a later call of the same slot has overtaken this one")
    try:
        return sent.request.parse(reply)
    except DelayqError as error:
        return error
    except Exception as error:  # noqa: BLE001 - what another program has stored must not end a consumer
        return ServerError(f"{sent.name}: what is stored cannot be read: {short_repr(error)}")


def _refusal(sent: PendingRequest, error: Exception) -> DelayqError:
    """Return the error of a request that the server refused, with its text shortened."""
    text = str(error)
    if "QUEUEFULL" in text:
        return QueueFullError(text.partition("QUEUEFULL ")[2].partition(" script: ")[0])
    if _is_out_of_memory(error):
        return QueueFullError("Redis is out of memory (maxmemory): this call stored nothing")
    line = _NO_PERMISSION.search(text)
    if isinstance(error, MovedError) or text.startswith("MOVED "):
        text = "Redis is a node of a cluster, and the queue is on another: begin the url with redis+cluster://"
    elif line and isinstance(sent.request, ScriptCall):  # Redis before 7.2 names only the line of a forbidden command
        commands = sent.request.script.commands_at(int(line[1] or line[2]))
        text = f"this user has no permissions to run the {commands} command"
    return ServerError(f"{sent.name}: {text[:200]}")
