"""Processes that tests start, directly or not, found by a mark in their environment."""

import os

import psutil

MARK = "TFDIST_TEST_MARK"


def marked_processes(mark: str) -> list[psutil.Process]:
    """The running processes whose environment has MARK=mark, except this one."""
    found = []
    for process in psutil.process_iter():
        try:
            running = process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE
            if running and process.environ().get(MARK) == mark:
                found.append(process)
        except psutil.Error:
            continue
    return found
