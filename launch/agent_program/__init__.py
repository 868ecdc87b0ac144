"""The program that runs on every host of a job, from `agent.py` down.

The launcher sends these modules (`bootstrap.py`) and the few others that they import, so they use only Python 3.10 and
its standard library, and few modules of it: each import delays every agent.
"""
