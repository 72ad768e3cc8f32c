"""An environment with a library's skills, served to MCP clients."""
