"""`python -m tfdist.cli`."""

from tfdist.cli.main import main

main()
