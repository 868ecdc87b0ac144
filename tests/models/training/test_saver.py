"""Signals that request a checkpoint."""

import os
import signal

from tfdist.models.training.saver import SaveRequests


def test_signals_are_noted_until_they_are_released():
    seen = []
    before = {number: signal.signal(number, lambda *_: seen.append(1)) for number in (signal.SIGTERM, signal.SIGUSR1)}
    try:
        for number in before:
            requests = SaveRequests()
            assert not requests.arrived
            os.kill(os.getpid(), number)
            assert requests.arrived
            requests.release()
        assert seen == []
        os.kill(os.getpid(), signal.SIGTERM)
        assert seen == [1]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
