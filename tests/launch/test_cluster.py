import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdist.launch.cluster import Cluster, Task, parse_tf_config
from tfdist.launch.errors import TfdistError

ADDRESSES = st.lists(st.from_regex(r"h[0-9]{1,3}:[0-9]{4}", fullmatch=True), min_size=1, max_size=5).map(tuple)


@given(st.dictionaries(st.sampled_from(["chief", "worker", "ps"]), ADDRESSES, min_size=1))
def test_tf_config_of_every_task_round_trips(addresses):
    cluster = Cluster(addresses)
    for role, hosts in addresses.items():
        for index in range(len(hosts)):
            task = Task(role, index)
            assert parse_tf_config(cluster.tf_config(task)) == (cluster, task)


def test_only_an_evaluators_tf_config_names_evaluators():
    cluster = Cluster({"worker": ("a:1",), "evaluator": ("b:2",)})
    assert json.loads(cluster.tf_config(Task("worker", 0)))["cluster"] == {"worker": ["a:1"]}
    assert "evaluator" in json.loads(cluster.tf_config(Task("evaluator", 0)))["cluster"]


def test_a_job_without_a_cluster_has_no_tf_config():
    assert Cluster({}).tf_config(Task("worker", 0)) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("not json", "not json"),
        ("[]", "must be JSON"),
        ('{"cluster": {"worker": ["a:1"]}}', "task"),
        ('{"cluster": {"worker": "a:1"}, "task": {"type": "worker", "index": 0}}', "lists of addresses"),
        ('{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": Infinity}}', "Infinity"),
        pytest.param("[" * 5000, "must be JSON", id="deep"),
        ('{"cluster": {"boss": ["a:1"]}, "task": {"type": "boss", "index": 0}}', "'boss'"),
        ('{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 1}}', "worker:1"),
        ('{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": -1}}', "worker:-1"),
        ('{"cluster": {"worker": ["a:1"]}, "task": {"type": "ps", "index": 0}}', "ps:0"),
    ],
)
def test_an_invalid_tf_config_is_refused_in_one_line(text, expected):
    with pytest.raises(TfdistError, match=expected) as error:
        parse_tf_config(text)
    assert "\n" not in str(error.value)


@given(st.text())
def test_any_text_but_a_tf_config_is_refused(text):
    with pytest.raises(TfdistError):
        parse_tf_config(text)


def test_an_evaluator_need_not_be_in_its_cluster():
    text = '{"cluster": {"chief": ["a:1"], "worker": ["b:2"]}, "task": {"type": "evaluator", "index": 0}}'
    cluster, task = parse_tf_config(text)
    assert (task, cluster.port(task)) == (Task("evaluator", 0), None)
    assert json.loads(cluster.tf_config(task)) == json.loads(text)
    for wrong in (text.replace("0}}", "-1}}"), text.replace('"worker"', '"evaluator"').replace("0}}", "1}}")):
        with pytest.raises(TfdistError, match="is not in its cluster"):
            parse_tf_config(wrong)
