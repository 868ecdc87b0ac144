"""A live table of a running job in the output of a notebook's cell, and the tasks' lines below it."""

import sys
from importlib import import_module
from typing import Any

from tfdist.launch.console.table import Table, picture

_WIDTH, _HEIGHT = 100, 24
"""Characters and lines of the table: a cell is about as wide, and scrolls."""


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook: it shows what programs display."""
    ipython: Any = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and hasattr(shell, "kernel")


class NotebookTable(Table):
    """Shows it in the place where it was shown first. So a long training is as long in the cell as a short one."""

    _shown: Any = None
    """What updates it."""

    def draw(self, now: float, last: bool = False) -> None:
        """Show it."""
        super().draw(now, last)
        display: Any = import_module("IPython.display").display
        text = picture(self.state, self.several_hosts, _WIDTH, _HEIGHT, now, last).plain
        if self._shown is None:
            self._shown = display({"text/plain": text}, raw=True, display_id=True)
        else:
            self._shown.update({"text/plain": text}, raw=True)
