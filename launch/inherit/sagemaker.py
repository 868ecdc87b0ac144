"""SageMaker: a worker on each host (https://github.com/aws/sagemaker-training-toolkit, ENVIRONMENT_VARIABLES.md)."""

import json
from collections.abc import Mapping

from tfdist.launch.cluster import Cluster, Task
from tfdist.launch.errors import TfdistError
from tfdist.launch.inherit.addresses import workers_on

_HOSTS = "SM_HOSTS"
_HOST = "SM_CURRENT_HOST"


def read(environ: Mapping[str, str], port: int | None) -> tuple[Cluster, Task]:
    """The hosts as workers, in SageMaker's order.

    Raises:
        TfdistError: the hosts are no JSON list, or this host is not one of them.
    """
    hosts, host = _hosts(environ[_HOSTS]), environ[_HOST]
    if host not in hosts:
        raise TfdistError(f"{_HOST}={host}: not one of {_HOSTS}={environ[_HOSTS]}; correct one of them")
    return workers_on(hosts, port), Task("worker", hosts.index(host))


def _hosts(text: str) -> list[str]:
    try:
        hosts = json.loads(text)
    except (ValueError, RecursionError):
        hosts = None
    if not isinstance(hosts, list) or not hosts or not all(isinstance(host, str) and host for host in hosts):
        raise TfdistError(f'{_HOSTS}={text!r}: must be a JSON list of names, as in ["algo-1", "algo-2"]; correct it')
    return hosts
