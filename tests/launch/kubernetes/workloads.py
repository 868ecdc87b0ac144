"""Jobs for the tests of manifests."""

from collections.abc import Mapping
from typing import Any

from tfdist.jobs.tasks import shape_of
from tfdist.launch.kubernetes.options import KubernetesOptions, Workload
from tfdist.strategies.choice import StrategyChoice
from tfdist.strategies.options import StrategyName

MULTI_WORKER = shape_of(StrategyChoice(StrategyName.MULTI_WORKER, workers=3)).roles
PARAMETER_SERVER = shape_of(StrategyChoice(StrategyName.PARAMETER_SERVER, workers=2, ps=2)).roles


def workload(roles: Mapping[str, Any] = MULTI_WORKER, **values: Any) -> Workload:
    return Workload(roles, ("launch", "--inherit", "tf-config"), **values)


def options(**values: Any) -> KubernetesOptions:
    return KubernetesOptions("registry/tfdist:1", **values)
