"""`tfdist doctor`."""

from typing import TYPE_CHECKING, Annotated

import typer

from tfdist.cli.host_options import where_options
from tfdist.cli.options import Port, option

if TYPE_CHECKING:
    from tfdist.cli.where import Where

Json = Annotated[bool, option("--json", "The rows as JSON.")]


@where_options()
def doctor(where: "Where", port: Port = None, json: Json = False) -> None:
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
    from tfdist.cli.examining import examine_hosts

    raise typer.Exit(examine_hosts(where, port, json))
