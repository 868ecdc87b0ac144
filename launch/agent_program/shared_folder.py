"""Whether a folder can be written, and is the same one as on another host. Part of the agent."""

import os
from contextlib import suppress

NOT_SHARED = "does not hold the file that another host has written there"
"""The reason of a folder that is another one."""


def check_folder(path: str, token: str, action: str) -> str:
    """Create the folder and write a file named after the token, or find that file, or remove it.

    Returns:
        Why that failed; empty if it did not. To find the file, the folder must be writable, too.
    """
    file = os.path.join(path, f".tfdist-{token}")
    try:
        if action == "write":
            os.makedirs(path, exist_ok=True)
            with open(file, "w", encoding="ascii") as stream:
                stream.write(token)
        elif action == "read":
            return _find_token(path, file, token)
        else:
            with suppress(FileNotFoundError):
                os.unlink(file)
    except FileExistsError:
        return "is a file, not a folder"
    except (OSError, ValueError) as error:
        return f"cannot be written ({getattr(error, 'strerror', None) or error})"
    return ""


def _find_token(path: str, file: str, token: str) -> str:
    for folder in (os.path.dirname(path), path):  # listing a folder makes a network file system look for new entries
        with suppress(OSError), os.scandir(folder) as entries:
            next(entries, None)
    try:
        with open(file, encoding="ascii", errors="replace") as stream:
            found = stream.read()
    except (FileNotFoundError, NotADirectoryError):
        found = ""
    if found != token:
        return NOT_SHARED
    return "" if os.access(path, os.W_OK | os.X_OK) else "cannot be written (Permission denied)"
