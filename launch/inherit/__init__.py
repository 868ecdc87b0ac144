"""Running as one task of a cluster that another launcher has started: its description in the environment, the start."""
