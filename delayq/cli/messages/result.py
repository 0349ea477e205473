"""`delayq result`: prints what the callback of a message has returned, and waits for it if asked to."""

from __future__ import annotations

from datetime import timedelta

import click

from delayq.broker.engine import Feature
from delayq.cli.support.options import DURATION, ID, json_option, queue_with, reveal_option
from delayq.cli.support.output import print_json, print_line
from delayq.cli.support.session import Session
from delayq.errors import MessageFailedError
from delayq.privacy.redaction import preview
from delayq.queue.inspecting.decoded_payload import decode_payload
from delayq.values.text import clean


@click.command()
@queue_with(Feature.RESULTS)
@click.argument("id", type=ID)
@click.option("--timeout", type=DURATION, default="0s", help="Wait so long for the end of the message.")
@reveal_option
@json_option
@click.pass_obj
def result(session: Session, queue: str, id: str, *, timeout: timedelta, reveal: bool, as_json: bool) -> None:
    """Print the result of the message ID of QUEUE, which was sent with --retention.

    Exit code 1 if the message has failed, or has not ended in time; 3 if there is no result of it.

    JSON: {"queue", "id", "result", "encoding"}; the encoding is json, text, base64, encrypted (in base64) or redacted.
    Of a message that has failed:
    {"queue", "id", "error": {"reason", "error", "attempts"}}.
    """
    try:
        stored = session.existing_queue(queue, reveal=reveal).result(id, timeout=timeout)
    except MessageFailedError as error:
        if as_json:
            failure = {"reason": error.reason, "error": error.error, "attempts": error.attempts}
            print_json({"queue": queue, "id": id, "error": failure})
        raise
    value, encoding, _ = (None, "json", False) if stored is None else decode_payload(stored, len(stored))
    if as_json:
        print_json({"queue": queue, "id": id, "result": value, "encoding": encoding})
    elif stored is not None and encoding == "encrypted":
        print_line(preview(stored, len(stored)))
    else:
        click.echo(clean("null" if stored is None else stored.decode("utf-8", "replace"), lines=True))
