"""The command line: `delayq`, also as `python -m delayq`."""

from delayq.cli.app import main

__all__ = ["main"]
