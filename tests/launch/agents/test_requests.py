from dataclasses import dataclass, field

from tfdist.launch.agents.inbox import Inbox
from tfdist.launch.agents.messages import Hello, Inspect, Inspected, Reserve, Reserved, Started
from tfdist.launch.agents.requests import Requests
from tfdist.launch.hosts.host import Host

from .stand_ins import channel_to, host, python_task, wait_for_message

H1, H2 = Host("h1"), Host("h2")


@dataclass
class FakeChannel:
    host: Host
    sent: list = field(default_factory=list)

    def send(self, message):
        self.sent.append(message)


def test_an_answer_goes_to_its_own_request_in_any_order():
    requests, answers, one, two = Requests(), [], FakeChannel(H1), FakeChannel(H2)
    requests.send(one, Reserve((0,)), lambda reply: answers.append(("one", reply)))
    requests.send(two, Reserve((0,)), lambda reply: answers.append(("two", reply)))
    requests.send(one, Inspect(("t",)), lambda reply: answers.append(("again", reply)))
    numbers = [message.request for message in (*one.sent, *two.sent)]
    assert len(set(numbers)) == 3
    first, again, second = numbers
    for source, number in ((H1, again), (H2, second), (H1, first)):
        requests.take(source, Reserved((5,), request=number))
    assert [name for name, _ in answers] == ["again", "two", "one"]


def test_a_late_answer_is_not_taken_for_that_of_a_new_request():
    requests, answers, channel = Requests(), [], FakeChannel(H1)
    requests.send(channel, Reserve((0,)), lambda _: answers.append("old"))
    requests.send(channel, Reserve((0,)), lambda _: answers.append("new"))
    old, new = (message.request for message in channel.sent)
    requests.take(H1, Reserved((1,), request=old))
    assert answers == ["old"]
    requests.take(H1, Reserved((2,), request=new))
    requests.take(H1, Reserved((3,), request=new))  # twice
    assert answers == ["old", "new"]


def test_requests_to_a_host_that_is_lost_are_forgotten():
    requests, answers, one, two = Requests(), [], FakeChannel(H1), FakeChannel(H2)
    for channel in (one, two):
        requests.send(channel, Inspect(("t",)), lambda reply: answers.append(reply.request))
    requests.forget(H1)
    for channel in (one, two):
        requests.take(channel.host, Inspected({}, {}, {}, request=channel.sent[0].request))
    assert answers == [two.sent[0].request]


def test_a_host_cannot_answer_for_another():
    requests, answers = Requests(), []
    channel = FakeChannel(H1)
    requests.send(channel, Reserve((0,)), answers.append)
    (message,) = channel.sent
    requests.take(H2, Reserved((1,), request=message.request))
    requests.take(None, Reserved((1,), request=message.request))
    requests.take(H1, Started("t", 1, 0.0))
    assert answers == []
    requests.take(H1, Reserved((2,), request=message.request))
    assert [answer.ports for answer in answers] == [(2,)]


def test_an_agent_answers_while_its_task_runs():
    inbox, requests, answers = Inbox(), Requests(), []
    with channel_to(host("h"), inbox) as channel:
        wait_for_message(inbox, Hello)
        channel.send(python_task("import time; time.sleep(600)"))
        wait_for_message(inbox, Started)
        requests.send(channel, Inspect(("worker-0", "no such task")), answers.append)
        arrival = wait_for_message(inbox, Inspected)
        requests.take(arrival.host, arrival.message)
    (answer,) = answers
    assert set(answer.states) == set(answer.waits) == {"worker-0"}
    assert answer.states["worker-0"] in "RSD"
