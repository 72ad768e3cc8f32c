"""The command line: `app` has the application, `command` the parts that commands share, the others the
commands."""
