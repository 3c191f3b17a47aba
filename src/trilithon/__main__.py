"""Owns `python -m trilithon`."""

from trilithon.cli.main import main

main()
