"""A task that calls a function (`function.py`), whose name is its argument, and sends back what that returns."""

import atexit
import os
import sys
import threading
import traceback
from contextlib import suppress

from tfdist.launch.events import dump_on_request, report_failure, report_failures
from tfdist.launch.function import copy_folder, read_call
from tfdist.launch.values import send


def main() -> int:
    """Call it; the exit code is 1 if it raises an exception, whose traceback begins in the function."""
    sys.argv[:] = sys.argv[1:]  # for what reads flags
    report_failures()  # as in threads
    dump_on_request()
    try:
        send(read_call(copy_folder())())
    except Exception as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename.startswith(os.path.dirname(__file__)):  # noqa: PTH120
            trace = trace.tb_next
        error.__traceback__ = trace
        report_failure(error)
        traceback.print_exception(error)
        return 1
    finally:
        threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as Python does at its end
        atexit._run_exitfuncs()
        with suppress(OSError, ValueError):  # closed
            sys.stdout.flush()
            sys.stderr.flush()
    return 0


if __name__ == "__main__":
    os._exit(main())  # Python's clean-up of TensorFlow takes seconds, sometimes a minute (agent_program/template.py)
