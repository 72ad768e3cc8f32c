"""Checks values against types: plain data and records, classes by name and their options."""
