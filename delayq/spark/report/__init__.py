"""The report on an event log: its tables, its page and its summary."""
