"""Studies: what recorded runs show when they are played again under other conditions."""
