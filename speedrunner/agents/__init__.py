"""The agent loop, the actor, tools, tool replies and prompts."""
