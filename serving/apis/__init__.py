"""The APIs of an engine, of token ids and of messages, behind the protocol of `serving.conversation`."""
