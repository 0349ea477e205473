-- Wakes an idle consumer: for one that took a wake-up and cannot follow it.
-- KEYS: wake list
-- ARGV: none
-- Returns: 1
-- Re-run: pushes nothing while a wake-up waits.
-- Uses: signal
signal(KEYS[1])
return 1
