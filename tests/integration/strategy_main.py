"""A program whose training is in another file. `python strategy_main.py imported`."""

import strategy_program  # noqa: F401  # trains
