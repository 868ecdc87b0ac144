"""`tfdist doctor`."""

from typing import Annotated

import typer

from tfdist.cli.host_options import host_options
from tfdist.cli.host_selection import HostSelection
from tfdist.cli.options import Port, option
from tfdist.cli.run_doctor import run_doctor
from tfdist.cli.timeout_options import timeout_options
from tfdist.launch.policy import Policy

Json = Annotated[bool, option("--json", "Print the rows as JSON.")]


@host_options()
@timeout_options(("start_timeout",))
def doctor(selection: HostSelection, policy: Policy, port: Port = None, json: Json = False) -> None:
    """Check whether a job could start. Shows how to fix what is wrong, on this machine or on many hosts.

    \b
    Examples:
      tfdist doctor
      tfdist doctor --hosts h1,h2
      tfdist doctor --hostfile hosts.txt --port 12345
      tfdist doctor --hosts h1,h2 --json

    Checks every host and measures the links between them: all links of up to 4 hosts, else from each to the next.
    Changes nothing on the hosts.

    The exit code is 0 if a job could start, else 69.
    """
    raise typer.Exit(run_doctor(selection, policy, port, json))
