"""All scenarios, in the order of the page."""

from tests.faults.disk_rows import DISK_ROWS
from tests.faults.host_rows import HOST_ROWS
from tests.faults.restart_rows import RESTART_ROWS
from tests.faults.task_rows import TASK_ROWS

SCENARIOS = (*TASK_ROWS, *RESTART_ROWS, *HOST_ROWS, *DISK_ROWS)
