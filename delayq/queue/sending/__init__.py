"""Sends: encoded, checked, grouped, and what becomes of an id that exists."""
