"""How texts pass through the kubelet, and TF_CONFIG in every pod."""

import json

from hypothesis import given
from hypothesis import strategies as st

from tfdist.launch.cluster import parse_tf_config
from tfdist.launch.kubernetes.variables import literal, tf_config

from .kubelet import expand


@given(st.text(alphabet="$()A{} ", max_size=12))
def test_a_literal_reaches_the_container_unchanged(text):
    assert expand(literal(text), {"A": "replaced"}) == text


def test_a_reference_would_be_replaced_otherwise():
    assert expand("$(A) $$(A) $(B) $A", {"A": "1"}) == "1 $(A) $(B) $A"


def test_tf_config_is_that_of_the_index():
    addresses = {"chief": ["c:1"], "worker": ["w0:1", "w1:1"]}
    text = expand(tf_config(addresses, "worker"), {"TFDIST_INDEX": "1"})
    cluster, task = parse_tf_config(text)
    assert (cluster.addresses, task.name) == ({"chief": ("c:1",), "worker": ("w0:1", "w1:1")}, "worker-1")
    assert type(json.loads(text)["task"]["index"]) is int
