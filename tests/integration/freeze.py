"""Runs an agent and stops it by SIGSTOP after its first message of a kind: python freeze.py KIND COMMAND..."""

import signal
import subprocess
import sys

kind, *command = sys.argv[1:]
agent = subprocess.Popen(command, stdout=subprocess.PIPE)
for line in agent.stdout:
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()
    if f'"kind": "{kind}"'.encode() in line:
        agent.send_signal(signal.SIGSTOP)
        signal.pause()
