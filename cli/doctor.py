"""`tfdist doctor`."""

from typing import TYPE_CHECKING, Annotated

import typer

from tfdist.cli.host_options import host_options
from tfdist.cli.options import Port, option

if TYPE_CHECKING:
    from tfdist.cli.host_selection import HostSelection

Json = Annotated[bool, option("--json", "The rows as JSON.")]


@host_options()
def doctor(selection: "HostSelection", port: Port = None, json: Json = False) -> None:
    """Say what would keep a job from starting, on this machine or on many hosts, and how to mend it.

    \b
    Examples:
      tfdist doctor
      tfdist doctor --hosts h1,h2
      tfdist doctor --hostfile hosts.txt --port 12345
      tfdist doctor --hosts h1,h2 --json

    Looks at every host, and dials and measures the ways between them; at most 4 hosts each to each. Changes nothing.

    The exit code is 0 if a job could start, else 69.
    """
    from tfdist.cli.run_doctor import examine_hosts

    raise typer.Exit(examine_hosts(selection, port, json))
