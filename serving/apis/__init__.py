"""The routes to an engine, one module each, behind the protocol of `serving.conversation`."""
