"""The engine: its server, its endpoint, requests to it, its metrics."""
