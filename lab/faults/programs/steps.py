"""A program without TensorFlow: STEPS steps, one every 50 ms, and a child that has left the process group."""

import subprocess
import sys
import time

from tfdist.launch import events

STEPS = int(sys.argv[1])

events.report_failures()
subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(3600)"], start_new_session=True)
events.emit("ready")
for step in range(1, STEPS + 1):
    events.emit("step", step=step, steps=STEPS)
    time.sleep(0.05)
