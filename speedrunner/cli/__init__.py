"""The command line: `main` holds the application, `command` what commands share, the others the commands."""
