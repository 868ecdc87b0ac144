"""A user's program that runs a function of its own as every task. Arguments: options of `tfdist launch`, --, STEPS."""

import sys
import time
from typing import Any

import tfdist
from tfdist.launch import events


def train(steps: int) -> int:
    """A step every 50 ms."""
    events.emit("ready")
    for step in range(1, steps + 1):
        events.emit("step", step=step, steps=steps)
        time.sleep(0.05)
    return steps


def main() -> int:
    """The exit code that the command would have."""
    *words, _, steps = sys.argv[1:]
    options: dict[str, Any] = {"env": {}}
    for option, value in zip(words[::2], words[1::2], strict=True):
        name = option.removeprefix("--").replace("-", "_")
        if name == "env":
            variable, _, text = value.partition("=")
            options["env"][variable] = text
        else:
            options[name] = int(value) if value.isdigit() else value
    try:
        result = tfdist.run(train, args=(int(steps),), **options)
    except tfdist.RunFailed as failed:
        print(f"\n{failed}", file=sys.stderr, flush=True)
        return failed.outcome.exit_code
    assert set(result.values.values()) == {int(steps)}
    return 0


if __name__ == "__main__":
    sys.exit(main())
