-- Wakes an idle consumer, in place of one that took a wake-up but cannot act on it.
-- KEYS: wake list
-- ARGV: none
-- Returns: 1
-- Re-run: pushes nothing while a wake-up waits.
-- Uses: signal
signal(KEYS[1])
return 1
