"""The program that runs on every host of a job, from `agent.py` down.

The launcher sends these files as one text (`bootstrap.py`), so they use only Python 3.10 and its standard library, few
modules of it, and import only each other at their top. No two define the same name.
"""
