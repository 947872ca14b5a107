"""`python -m vrnet` is the command `vrnet`."""

from vrnet.app.cli import main

main()
