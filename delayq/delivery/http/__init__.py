"""Delivery by HTTP: webhooks and chats."""
