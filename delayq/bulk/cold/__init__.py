"""The cold tier: what is due far ahead waits in Parquet files by day, and comes back in time under its id."""
