"""The console script `tfdist`, also run by `python -m tfdist`."""

import os
import sys

FAILED, USAGE, INTERRUPTED = 1, 2, 130
"""Values of `ExitCode`, whose import may be what fails or is interrupted."""


def main() -> None:
    """Run the command line and exit with its code.

    Everything is closed and flushed then; Python's own clean-up would take a sixth of a short command.
    """
    os._exit(run_command())


def run_command() -> int:
    """Run the command line; returns the exit code."""
    _forget_working_folder()
    while (unused := os.open(os.devnull, os.O_RDWR)) < 3:  # a standard stream that was closed before the start
        pass
    os.close(unused)
    for number, name in enumerate(("stdout", "stderr"), 1):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w"))
        getattr(sys, name).reconfigure(errors="backslashreplace")  # names and values may hold any bytes
    if sys.platform != "linux":  # before an import fails
        sys.stderr.write(f"tfdist: this is {sys.platform}, and tfdist needs Linux, or WSL on Windows\n")
        return USAGE
    try:
        import signal

        from tfdist.cli.command import run

        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # where a parent has ignored it, no process can be waited for
        if os.getpid() == 1:
            from tfdist.launch.init_process import act_as_init

            act_as_init()
        code: int = run(sys.argv[1:])
        sys.stdout.flush()
    except (KeyboardInterrupt, RuntimeError) as error:
        if not isinstance(error, KeyboardInterrupt) and not isinstance(error.__cause__, KeyboardInterrupt):
            raise
        code = INTERRUPTED  # Python 3.10 and 3.11 wrap an interrupt while a class is created
    except OSError:
        code = FAILED  # stdout is closed or full, so a message cannot be printed either
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return code


def _forget_working_folder() -> None:
    """Modules in the working folder must not shadow ours: a colon at the end of PYTHONPATH, which is easily left there,
    lets Python look there."""
    entries = (os.environ.get("PYTHONPATH") or "/").split(os.pathsep)
    if all(os.path.normpath(entry) != "." for entry in entries):
        return
    try:
        working = os.getcwd()  # noqa: PTH109 - nothing may be imported yet
    except FileNotFoundError:  # it was deleted
        return
    sys.path[:] = [path for path in sys.path if path != working or path in entries]


if __name__ == "__main__":
    main()
