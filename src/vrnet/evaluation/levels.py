"""What people are told of each level of a verdict: in the terminal, in pictures and on every page."""

WORDS = {"good": "good", "look": "look at it", "failed": "failed"}
"""Files and programs have the level itself, as metrics.json has it."""
