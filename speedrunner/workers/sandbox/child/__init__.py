"""The code in a sandboxed process that runs the untrusted code: standard library only, no secrets.

Nothing here is a protection: the untrusted code in the same process can change all of it. It serves code that
behaves. Its other side (`speedrunner.workers.sandbox`) trusts nothing that it sends.
"""
