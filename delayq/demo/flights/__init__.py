"""`delayq spark demo`: a reminder two hours before each of a year's flights out of New York, from plan to audit."""
