"""Options of `delayq worker` that deliver messages without code, and the queue and callback made from them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from delayq.cli.support.engines import ENGINES
from delayq.cli.support.options import DURATION, QUEUE, F, ParamType

if TYPE_CHECKING:
    from delayq.cli.support.session import Session
    from delayq.delivery import Adapter


NEEDED: dict[str, tuple[str, ...]] = {
    "log": (),
    "webhook": ("webhook_url",),
    "smtp": ("smtp_host", "smtp_from", "smtp_to", "smtp_subject"),
    "command": (),
}
"""The ways to deliver, and the options that each needs."""
RETRY_DELAY = "10s"
SINK_GROUPS = {"With --deliver webhook": ["--webhook-", "--allow-private"], "With --deliver smtp": ["--smtp-"]}
"""The options of a webhook and of a mail server, by group of the help."""


class _Lines(ParamType):
    """A text that may be given several times; in the environment, one per line."""

    name = "text"
    envvar_list_splitter = "\n"


FILE = click.Path(path_type=Path, exists=True, dir_okay=False)

_QUEUE_OPTIONS = [
    click.option("--queue", type=QUEUE, metavar="QUEUE", help="Process this queue with --deliver."),
    click.option("--deliver", type=click.Choice(list(NEEDED)), help="Deliver messages this way, without code."),
    click.option("--deliver-timeout", type=DURATION, help="Limit the time of a delivery."),
    click.option(
        "--retry-delay", type=DURATION, help=f"Wait this long after the first failure.  [default: {RETRY_DELAY}]"
    ),
]
_WEBHOOK_OPTIONS = [
    click.option("--webhook-url", metavar="URL", help="Post messages to this URL, or template ('{url}')."),
    click.option(
        "--webhook-service",
        type=click.Choice(["slack", "mattermost", "ntfy"]),
        help="Post a text in the form of this service.",
    ),
    click.option(
        "--webhook-text",
        metavar="TEMPLATE",
        help="Set the text for a chat, such as '{summary}'.  [default: the payload]",
    ),
    click.option(
        "--allow-private", is_flag=True, help="Let a payload's URL name hosts of this machine and its network."
    ),
    click.option(
        "--webhook-header", type=_Lines(), multiple=True, metavar="NAME=VALUE", help="Add an HTTP header; repeatable."
    ),
    click.option(
        "--webhook-secret-file", type=FILE, help="Sign with the secret in this file.  [default: DELAYQ_WEBHOOK_SECRET]"
    ),
]
_COMMAND_OPTIONS = [
    click.option(
        "--command-env",
        type=_Lines(),
        multiple=True,
        metavar="NAME",
        help="Pass this variable to the program, though it may hold a secret; repeatable.",
    ),
]
_SMTP_OPTIONS = [
    click.option("--smtp-host", metavar="HOST", help="Send mail through this server."),
    click.option(
        "--smtp-port", type=click.IntRange(1, 65_535), metavar="PORT", help="Set the port of the mail server."
    ),
    click.option(
        "--smtp-tls", type=click.Choice(["starttls", "ssl", "off"]), help="Encrypt the connection.  [default: starttls]"
    ),
    click.option("--smtp-user", metavar="USER", help="Log in as this user."),
    click.option(
        "--smtp-password-file", type=FILE, help="Log in with this file's password.  [default: DELAYQ_SMTP_PASSWORD]"
    ),
    click.option("--smtp-from", metavar="ADDRESS", help="Set the sender."),
    click.option(
        "--smtp-to", type=_Lines(), multiple=True, metavar="TEMPLATE", help="Set a recipient ('{email}'); repeatable."
    ),
    click.option("--smtp-subject", metavar="TEMPLATE", help="Set the subject, such as '{summary}'."),
    click.option(
        "--smtp-body-file", type=FILE, help="Use the template in this file as the text.  [default: the payload]"
    ),
]


def deliver_options(function: F) -> F:
    """Add the options for delivery without code."""
    return _add([*_QUEUE_OPTIONS, *_WEBHOOK_OPTIONS, *_COMMAND_OPTIONS, *_SMTP_OPTIONS], function)


def notify_options(function: F) -> F:
    """Add the options for notifications: where they go."""
    return _add([*_WEBHOOK_OPTIONS, *_SMTP_OPTIONS], function)


def _add(options: Sequence[Callable[[F], F]], function: F) -> F:
    for option in reversed(options):
        function = option(function)
    return function


def check_options(ctx: click.Context, words: Sequence[str]) -> None:
    """Raise a usage error for options that are missing or conflict."""
    way: str | None = ctx.params["deliver"]
    needed = ("deliver", "webhook_", "allow_private", "smtp_", "command_", "queue", "engine", "group", "retry_delay")
    given = [name for name in ctx.params if name.startswith(needed) and name != "queues"]
    on_command_line = click.core.ParameterSource.COMMANDLINE
    explicit = [name for name in given if ctx.get_parameter_source(name) is on_command_line]
    if way is not None:
        error = _find_error(way, ctx.params, explicit, words)
    elif explicit:
        error = f"{_flag(explicit[0])} needs --deliver"
    else:
        error = "" if words else "give MODULE or MODULE:QUEUE, or --queue and --deliver"
    if error:
        raise click.UsageError(error, ctx)


def _find_error(way: str, options: dict[str, Any], explicit: Sequence[str], words: Sequence[str]) -> str:
    """Return what is wrong with the options, "" if nothing is."""
    if options["queue"] is None:
        return "--deliver needs --queue"
    if error := find_sink_error(way, options, explicit):
        return error
    if way == "command":
        return "" if words else "--deliver command needs a program: -- PROGRAM [ARGUMENT]…"
    return f"{words[0]!r:.80} cannot be used with --deliver {way}" if words else ""


def find_sink_error(way: str, options: dict[str, Any], explicit: Sequence[str]) -> str:
    """Return which option is missing for a way to deliver, or is of another one; "" if all is well."""
    for name in explicit:
        of = "webhook_" if name == "allow_private" else name
        if of.startswith(("webhook_", "smtp_", "command_")) and not of.startswith(f"{way}_"):
            return f"{_flag(name)} cannot be used with --deliver {way}"
    for name in NEEDED[way]:
        if not options[name]:
            return f"--deliver {way} needs {_flag(name)}"
    return ""


def make_adapter(options: dict[str, Any], words: Sequence[str]) -> Adapter:
    """Return the callback for these options; raise `ConfigurationError` for invalid ones."""
    from delayq.delivery import Command, Log, Smtp, Webhook

    timing = {} if options["deliver_timeout"] is None else {"timeout": options["deliver_timeout"]}
    match options["deliver"]:
        case "webhook":
            for name in ("httpx", "httpcore"):  # their log has URLs and headers, which may contain secrets
                logging.getLogger(name).setLevel(logging.WARNING)
            secret, headers = _secret(options["webhook_secret_file"]), _headers(options["webhook_header"])
            return Webhook(
                options["webhook_url"],
                secret=secret,
                headers=headers,
                allow_private=options["allow_private"],
                service=options["webhook_service"],
                text=options["webhook_text"],
                **timing,
            )
        case "smtp":
            body = options["smtp_body_file"]
            return Smtp(
                options["smtp_host"],
                options["smtp_port"],
                sender=options["smtp_from"],
                to=options["smtp_to"],
                subject=options["smtp_subject"],
                tls=options["smtp_tls"] or "starttls",
                user=options["smtp_user"],
                password=_secret(options["smtp_password_file"]),
                **({"body": _text(body) if body else options["smtp_body"]} if body or "smtp_body" in options else {}),
                **timing,
            )
        case "command":
            return Command(words, pass_env=options["command_env"], **timing)
        case _:
            return Log()


def open_queue(session: Session, options: dict[str, Any]) -> Any:
    """Return the queue: it passes payloads as bytes, and waits longer after each failed delivery."""
    from delayq.options import QueueOptions
    from delayq.values.backoff import Backoff

    first = options["retry_delay"] or RETRY_DELAY
    timeout = options["deliver_timeout"] or timedelta()
    chosen = QueueOptions(
        codec="bytes",
        # Three retries survive an outage of a minute.
        nack_delay=Backoff.exponential(first, factor=4, jitter=0.1),
        # A delivery may be slow: do not hold back messages that another process could deliver now.
        prefetch=0,
        max_consume_duration=max(timedelta(minutes=10), 3 * timeout),
    )
    commands = ENGINES[options["engine"]].commands(session, group=options["group"])
    return commands.open_to_consume(options["queue"], chosen)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"cannot read {str(file)!r} as UTF-8 text") from error


def _secret(file: Path | None) -> str | None:
    """Return the secret in a file, None without a file."""
    secret = _text(file).strip() if file else None
    if file and not secret:
        raise click.UsageError(f"{str(file)!r} is empty: it must contain the secret")
    return secret


def _headers(lines: Sequence[str]) -> dict[str, str]:
    headers = {}
    for line in lines:
        name, equals, value = line.partition("=")
        if not equals:
            raise click.UsageError("--webhook-header must look like NAME=VALUE")  # not shown: it may be secret
        headers[name] = value.strip()
    return headers
