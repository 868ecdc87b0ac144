"""`python -m tfdist`: the command line."""

from tfdist.cli.__main__ import main

main()
