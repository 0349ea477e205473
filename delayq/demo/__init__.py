"""The demos: `holidays` is `delayq demo`, `flights` is `delayq spark demo`; only these commands import them."""
