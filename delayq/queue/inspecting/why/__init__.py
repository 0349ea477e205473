"""Why a message, or a queue, waits."""
