"""Agents: the loop, the actor, tools, replies, prompts."""
