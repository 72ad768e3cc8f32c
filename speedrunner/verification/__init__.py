"""Whether a run is what its records say: no model and no server is needed for any of it."""
