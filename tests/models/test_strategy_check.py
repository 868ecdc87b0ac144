import pytest

from tfdist.jobs.tasks import shape_of
from tfdist.launch.agents.messages import Event, Listening, Started
from tfdist.launch.hosts.host import LOCAL
from tfdist.launch.job import Program, plan_job
from tfdist.launch.machine import Machine
from tfdist.models.strategy_check import StrategyCheck, StrategyFacts
from tfdist.strategies.choice import StrategyChoice
from tfdist.strategies.options import StrategyName

ONE = StrategyChoice()
MIRRORED = StrategyChoice(StrategyName.MIRRORED, devices=2)
MULTI_WORKER = StrategyChoice(StrategyName.MULTI_WORKER, workers=2)
CENTRAL = StrategyChoice(StrategyName.CENTRAL_STORAGE, devices=2)
SERVERS = StrategyChoice(StrategyName.PARAMETER_SERVER, workers=2, ps=1)
CLASSIC = StrategyChoice(StrategyName.BETWEEN_GRAPH, workers=2, ps=1)
INDEPENDENT = StrategyChoice(StrategyName.INDEPENDENT, workers=2)
EXTERNAL = StrategyChoice(StrategyName.EXTERNAL, workers=2)


def use(name, replicas, *, trains=True, task="worker-0"):
    return Event(task, 0.0, {"event": "strategy", "name": name, "replicas": replicas, "trains": trains})


def listening(*tasks):
    return [Listening(task, 0.0) for task in tasks]


BUILT_MIRRORED = use("MirroredStrategy", 2, trains=False)
DEFAULT = "_DefaultDistributionStrategy"


def judge(choice, messages):
    facts = StrategyFacts()
    for message in messages:
        facts.note(message)
    job = plan_job(shape_of(choice), Program(("true",), {}, "/"), {LOCAL: Machine((0, 1), ())})
    return facts.judge(choice, job)


@pytest.mark.parametrize(
    ("choice", "messages"),
    [
        (ONE, []),
        (ONE, [use("OneDeviceStrategy", 1)]),
        (ONE, [use("MirroredStrategy", 1)]),
        (INDEPENDENT, []),
        (INDEPENDENT, [use(DEFAULT, 1), use(DEFAULT, 1, task="worker-1")]),
        (MIRRORED, [BUILT_MIRRORED, use("MirroredStrategy", 2)]),
        (MIRRORED, [use("MirroredStrategyV1", 2)]),
        (MULTI_WORKER, [use("CollectiveAllReduceStrategy", 2)]),
        (MULTI_WORKER, [use("_CollectiveAllReduceStrategyExperimental", 2)]),
        (MULTI_WORKER, listening("worker-0", "worker-1")),
        (CENTRAL, [use("CentralStorageStrategy", 2)]),
        (SERVERS, [use("ParameterServerStrategyV2", 1, task="chief-0")]),
        (SERVERS, listening("worker-0", "worker-1", "ps-0")),
        (CLASSIC, listening("worker-0", "worker-1", "ps-0")),
        (EXTERNAL, []),
    ],
)
def test_a_program_that_trains_under_its_strategy_is_confirmed(choice, messages):
    assert judge(choice, messages) == (StrategyCheck.CONFIRMED, "")


@pytest.mark.parametrize(
    ("choice", "messages", "why"),
    [
        (ONE, [use("MirroredStrategy", 2)], "one-device: it trained 2 replicas in sync, not 1"),
        (INDEPENDENT, [use("CollectiveAllReduceStrategy", 2)], "independent: it trained 2 replicas in sync, not 1"),
        (MIRRORED, [BUILT_MIRRORED, use(DEFAULT, 1)], "mirrored: its model was built without the strategy"),
        (MIRRORED, [BUILT_MIRRORED], "mirrored: it built the strategy and ran no step under it"),
        (MIRRORED, [use("MirroredStrategy", 1)], "mirrored: it trained 1 replica in sync, not 2"),
        (CENTRAL, [use("MirroredStrategy", 2)], "central-storage but under MirroredStrategy"),
        (MULTI_WORKER, [use("CollectiveAllReduceStrategy", 1)], "multiworker: it trained 1 replica in sync, not 2"),
        (MULTI_WORKER, [], "multiworker: worker-0 and worker-1 listened on no port of TF_CONFIG, so each task trained"),
        (SERVERS, listening("ps-0"), "parameter-server: worker-0 and worker-1 listened on no port of TF_CONFIG"),
        (SERVERS, [use(DEFAULT, 1, task="chief-0")], "parameter-server: its model was built without the strategy"),
        (CLASSIC, [], "between-graph: worker-0, worker-1 and ps-0 listened on no port of TF_CONFIG"),
    ],
)
def test_a_program_that_does_not_is_refuted_with_the_reason_and_the_fix(choice, messages, why):
    label, sentence = judge(choice, messages)
    assert label is StrategyCheck.REFUTED
    assert sentence.startswith(f"the program did not train under {why}")
    assert "docs/convert.md" in sentence


def test_the_line_of_the_program_is_named():
    event = use(DEFAULT, 1).event
    _, sentence = judge(MIRRORED, [Event("worker-0", 0.0, {**event, "line": "train.py:12"})])
    assert "its model was built without the strategy (train.py:12); build" in sentence


def test_what_a_task_calls_its_strategy_stays_a_part_of_one_line():
    event = use("x\ntfdist: done\n" * 1000, 1).event
    _, sentence = judge(MIRRORED, [Event("worker-0", 0.0, {**event, "line": "a\u2028b"})])
    assert sentence.splitlines() == [sentence]
    assert len(sentence) < 600


def test_without_facts_it_is_unknown():
    label, sentence = judge(MIRRORED, [])
    assert label is StrategyCheck.UNKNOWN
    assert sentence.startswith("it is unknown whether the program trained under mirrored; build the strategy with")
    assert (
        judge(MULTI_WORKER, listening("worker-0"))[0] is StrategyCheck.UNKNOWN
    )  # the other one may have been too short


def test_a_restart_forgets_the_facts_of_the_attempt_before():
    started = Started("worker-0", 1, 0.0, attempt=1)
    assert (
        judge(MIRRORED, [use("MirroredStrategy", 1), started, use("MirroredStrategy", 2)])[0] is StrategyCheck.CONFIRMED
    )
    assert judge(MIRRORED, [use("MirroredStrategy", 2), started])[0] is StrategyCheck.UNKNOWN


@pytest.mark.parametrize("event", [{"name": 1, "replicas": 2, "trains": True}, {"name": "M"}, {"replicas": "2"}])
def test_an_event_of_another_form_says_nothing(event):
    assert judge(MIRRORED, [Event("worker-0", 0.0, {"event": "strategy", **event})])[0] is StrategyCheck.UNKNOWN


def test_options_that_act_in_current_are_named_if_it_was_not_called():
    choice = StrategyChoice(soft_placement=False)
    job = plan_job(shape_of(choice), Program(("true",), {}, "/"), {LOCAL: Machine((0, 1), ())})
    facts = StrategyFacts()
    (warning,) = facts.warnings(choice, job)
    assert warning == "--set soft_placement acts in tfdist.strategies.current(), which the program did not call"
    facts.note(use("OneDeviceStrategy", 1, trains=False))
    assert not list(facts.warnings(choice, job))
