"""What runs a consumer's loop and its callbacks: threads, or tasks of asyncio."""
