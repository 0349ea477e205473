"""Results: kept, read and waited for."""
