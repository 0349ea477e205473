"""What a relay does, whichever library talks to the database: steps, the driver with threads, rows, and NOTIFY."""
