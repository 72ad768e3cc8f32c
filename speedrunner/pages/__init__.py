"""Pages of runs for people: the viewer, the report and its figures."""
