"""The URL of the server of a queue: from the option, the environment, or the default."""

from __future__ import annotations

import os

from delayq.errors import ConfigurationError
from delayq.options import QueueOptions

DEFAULT_URL = "redis://localhost:6379/0"


def find_url(options: QueueOptions) -> str:
    """Return the URL to connect to: the option, else `DELAYQ_URL`, else the local Redis."""
    url = options.get("url") or os.environ.get("DELAYQ_URL") or DEFAULT_URL
    if not isinstance(url, str):
        raise ConfigurationError(f"url must be text, not a {type(url).__name__}")
    return url


def url_source(options: QueueOptions) -> str:
    """Return where the URL of `find_url` is from, for messages."""
    given, environment = options.get("url"), os.environ.get("DELAYQ_URL")
    if environment and given in (None, "", environment):  # the command line reads the variable as its option
        return "from DELAYQ_URL"
    return "from the option url" if given else "default"
