"""Programs that measure tfdist itself, run by targets of the Makefile. They are no tests."""
