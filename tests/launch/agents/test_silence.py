import math
from dataclasses import dataclass

import pytest

from tfdist.launch.agents.silence import SilenceDetector
from tfdist.launch.hosts.host import LOCAL, Host

H2 = Host("h2")


@dataclass
class FakeChannel:
    host: Host = H2
    heard: float = 100.0
    silent: bool = False


def test_an_agent_is_lost_once_after_so_many_seconds_without_a_word():
    channel, silence = FakeChannel(), SilenceDetector(10.0, looked=100.0)
    assert not any(silence.look([channel], now) for now in (104.0, 108.0, 109.9))
    ((lost, message),) = silence.look([channel], 110.0)
    assert lost is channel
    assert (message.host, message.reason) == ("h2", "it said nothing for 10 s")
    assert silence.look([channel], 111.0) == []
    assert silence.due(channel) == math.inf


def test_what_was_not_heard_while_nobody_looked_does_not_count():
    channel, silence = FakeChannel(), SilenceDetector(10.0, looked=100.0)
    assert not any(silence.look([channel], now) for now in (160.0, 164.0, 168.0, 169.9))
    assert silence.look([channel], 170.0)


@pytest.mark.parametrize("channel", [FakeChannel(LOCAL), FakeChannel(heard=math.inf)])
def test_the_local_agent_and_one_that_we_leave_unread_are_never_lost(channel):
    silence = SilenceDetector(10.0, looked=100.0)
    assert not any(silence.look([channel], 100.0 + 4 * number) for number in range(20))
