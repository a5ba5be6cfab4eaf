"""`python -m wng.cli`, the same as `wng`."""

from wng.cli import main

main()
