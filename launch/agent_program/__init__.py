"""The program that runs on every host of a job, from `agent.py` down: that serves the launcher, `tasks.py` starts and
ends tasks, `running_task.py` reads what one of them writes.

The launcher sends these modules (`bootstrap.py`), so they use only Python 3.10 and its standard library, and few of its
modules: each import delays every agent.
"""
