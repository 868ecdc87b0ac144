"""All scenarios, in the order of the page."""

from lab.faults.disk_rows import DISK_ROWS
from lab.faults.host_rows import HOST_ROWS
from lab.faults.restart_rows import RESTART_ROWS
from lab.faults.task_rows import TASK_ROWS

SCENARIOS = (*TASK_ROWS, *RESTART_ROWS, *HOST_ROWS, *DISK_ROWS)
