"""The flows: `consume` is the consumer's whole behaviour, `held` and `owed` are its books."""
