import math
from dataclasses import dataclass

import pytest

from tfdist.launch.agents.silence import SilenceDetector
from tfdist.launch.hosts.host import LOCAL, Host

H2 = Host("h2")


@dataclass
class FakeChannel:
    host: Host = H2
    last_received: float = 100.0
    silent: bool = False


def test_an_agent_is_lost_once_when_its_limit_passes_without_a_message():
    channel, silence = FakeChannel(), SilenceDetector(10.0, last_check=100.0)
    assert not any(silence.newly_silent([channel], now) for now in (104.0, 108.0, 109.9))
    ((source, message),) = silence.newly_silent([channel], 110.0)
    assert source is channel
    assert (message.host, message.reason) == ("h2", "no message for 10 s")
    assert silence.newly_silent([channel], 111.0) == []
    assert silence.deadline(channel) == math.inf


def test_after_a_pause_of_the_checks_the_limit_starts_again():
    channel, silence = FakeChannel(), SilenceDetector(10.0, last_check=100.0)
    assert not any(silence.newly_silent([channel], now) for now in (160.0, 164.0, 168.0, 169.9))
    assert silence.newly_silent([channel], 170.0)


@pytest.mark.parametrize("channel", [FakeChannel(LOCAL), FakeChannel(last_received=math.inf)])
def test_the_local_agent_and_an_unread_stream_never_count_as_silent(channel):
    silence = SilenceDetector(10.0, last_check=100.0)
    assert not any(silence.newly_silent([channel], 100.0 + 4 * step) for step in range(20))
