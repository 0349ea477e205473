"""ASGI: queues that open, consume and drain with a web application such as FastAPI, without importing any."""
