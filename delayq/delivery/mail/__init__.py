"""Delivery by mail: SMTP, addresses and bounces."""
