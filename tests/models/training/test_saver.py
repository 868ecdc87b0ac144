"""Signals that request a checkpoint."""

import os
import signal

from tfdist.models.training.saver import SaveRequests


def test_signals_are_noted_until_they_are_released():
    seen = []
    before = {number: signal.signal(number, lambda *_: seen.append(1)) for number in (signal.SIGTERM, signal.SIGUSR1)}
    try:
        requests = SaveRequests()
        os.kill(os.getpid(), signal.SIGTERM)
        assert (requests.signal, len(seen)) == (None, 1)
        requests.catch()
        assert requests.signal is None
        os.kill(os.getpid(), signal.SIGUSR1)
        assert requests.signal == "SIGUSR1"
        os.kill(os.getpid(), signal.SIGTERM)
        assert (requests.signal, len(seen)) == ("SIGTERM", 1)
        requests.release()
        os.kill(os.getpid(), signal.SIGTERM)
        assert len(seen) == 2
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
