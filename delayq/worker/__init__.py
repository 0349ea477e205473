"""Consuming: the consumer loop, its drivers for threads and asyncio, and delivered messages."""
