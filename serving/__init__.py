"""The engine: start it, reach it, meter it. Nothing here knows of skills or environments."""
