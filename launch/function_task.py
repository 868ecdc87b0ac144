"""A task that calls a function (`function.py`), and sends back what it returns."""

import atexit
import sys
import threading
import traceback

from tfdist.launch.events import dump_on_request, report_failure, report_failures
from tfdist.launch.function import copy_folder, read_call
from tfdist.launch.values import send


def main() -> int:
    """Call it; the exit code is 1 if it raises an exception, whose traceback begins in the function."""
    sys.argv[:] = sys.argv[1:]  # for what reads flags: the name of the function
    report_failures()  # of what follows a call of sys.excepthook, as in threads
    dump_on_request()
    try:
        send(read_call(copy_folder())())
    except Exception as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_globals.get("__name__", "").startswith("tfdist.launch."):
            trace = trace.tb_next
        error.__traceback__ = trace
        report_failure(error)
        traceback.print_exception(error)
        return 1
    finally:
        # what Python does at its end, but for its clean-up: that of TensorFlow takes long (agent_program/template.py)
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
    return 0
