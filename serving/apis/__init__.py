"""The APIs of an engine, one module each, behind the protocol of `serving.conversation`."""
