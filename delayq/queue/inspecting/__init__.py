"""Looking at a queue: counts, messages, history, forecast, event log, workers."""
