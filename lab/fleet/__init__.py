"""A fleet of played hosts, and what the launcher costs with N of them. Run it with `make scale`."""
