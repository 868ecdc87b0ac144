"""An agent that sends what a test has written: `played_agent.py FILE`. It loads little, and ends at once."""

import json
import signal
import sys


def play(path: str) -> None:
    """Send the messages of `path`: JSON with `first`, `replies` to each kind of request, and `lines` once a task starts."""
    with open(path, encoding="utf-8") as file:  # noqa: PTH123 - pathlib takes longer to load than all else
        session = json.load(file)
    sys.stdin.buffer.read(int(sys.stdin.buffer.readline()))
    send(*session["first"])
    signal.alarm(3)  # the launcher may wait for something else: end
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "request" in message:
            send(session["replies"].get(message["kind"], "").replace("REQUEST", str(message["request"])))
        elif message["kind"] == "start":
            send(*session["lines"])


def send(*lines: str) -> None:
    """Write lines, whose characters are bytes."""
    for line in lines:
        sys.stdout.buffer.write(line.encode("latin-1") + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    play(sys.argv[1])
