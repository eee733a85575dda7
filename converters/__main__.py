"""`python -m envconvert`."""

from envconvert.cli import main

main()
