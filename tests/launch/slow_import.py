"""A module that takes longer to import than an agent has for its first message."""

import time

time.sleep(60)
