"""Warnings about the hosts of a planned job."""

import pytest

from tfdist.cli.plan_launch import busy_warnings
from tfdist.launch.hosts.host import Host
from tfdist.launch.job import Program, RoleShape, Shape, plan_job
from tfdist.launch.machine import Machine

H1, H2 = Host("h1"), Host("h2")


@pytest.mark.parametrize(
    ("values", "warning"),
    [
        ({}, None),
        ({"busy": 0.1}, None),
        ({"busy": 0.43}, "other programs on h2 are busy (43% of all cores): end them, or expect longer steps"),
        ({"cores_in_use": (3,)}, None),
        ({"cores_in_use": (1, 3)}, "other programs on h2 are pinned to core 1, as this job is: end them, or"),
        ({"cores_in_use": (0, 1), "busy": 0.9}, "other programs on h2 are pinned to cores 0, 1, as this job is"),
    ],
)
def test_other_programs_on_a_host_of_the_job_are_a_warning(values, warning):
    machines = {H1: Machine((0, 1, 2, 3), (), slots=1), H2: Machine((0, 1, 2, 3), (), slots=1, **values)}
    shape = Shape({"worker": RoleShape(2)}, has_cluster=True, devices=2, cores_per_device=1)
    found = busy_warnings(plan_job(shape, Program(("true",), {}, "/"), machines), machines)
    assert [text.startswith(warning) for text in found] == ([] if warning is None else [True])
