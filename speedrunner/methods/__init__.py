"""The methods, by name in `registry`; `base.Method` is what one is."""
