"""The record of an engine on one machine: `speedrunner bench gpu`."""
