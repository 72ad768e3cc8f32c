"""What runs inside a sandboxed process, beside the untrusted code: the standard library only, no secrets.

Nothing here protects anybody: the code that runs beside it can change all of it. It is here to serve code
that behaves, and its other side (`speedrunner.sandbox`) believes nothing that it says.
"""
