"""One file per command: a frozen dataclass whose fields are the arguments, and whose `run()` does the work.

The docstring below a field is its help. What only `run()` needs is imported there, so that help is shown at once.
"""
