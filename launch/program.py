"""The user's command -> the program of a job."""

import shutil
from collections.abc import Mapping
from pathlib import Path

from tfdist.launch.errors import TfdistError
from tfdist.launch.job import Program
from tfdist.launch.machine import Machines


def program_of(command: tuple[str, ...], env: Mapping[str, str], machines: Machines) -> Program:
    """The user's command. `python`, or a script without it, runs with the Python of tfdist on each host.

    Programs and scripts are checked only if every task runs here, in this folder.

    Raises:
        TfdistError: the program or its script does not exist.
    """
    program, *arguments = command
    check = not any(host.chdir or not host.local for host in machines)
    cwd, on_path = str(Path.cwd()), shutil.which(program) is not None
    is_python = program in ("python", "python3")
    words = tuple(arguments) if is_python else command
    if is_python or (program.endswith(".py") and (Path(program).is_file() or not on_path)):
        if check and words and words[0].endswith(".py") and not Path(words[0]).is_file():
            raise TfdistError(f"the script {words[0]!r} is not in {cwd!r}: give its path")
        return Program(words, env, cwd, python=True)
    if check and not on_path:
        if Path(program).is_file():
            raise TfdistError(f"the program {program!r} is not executable: chmod +x it, or name its interpreter")
        raise TfdistError(f"the program {program!r} is not found: give its path, or install it")
    return Program(command, env, cwd)
