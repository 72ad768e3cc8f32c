"""Token ids, tools, and the grammars and formats of native tool calls."""
