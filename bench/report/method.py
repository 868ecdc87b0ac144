"""How the figures of a report were measured. Pure."""

from collections.abc import Iterable

from tfdist.bench.report.summary import ArmRow

TURNS = """\
The processes of an arm are started once in each incarnation, warmed up and parked. Then the arms take turns of a few
seconds, while all others wait. A round is one turn of every arm, in shuffled order, so that drift of the machine
affects all arms alike.

- **Timing.** All processes of an arm begin a turn together. After a step that is not counted, a turn is timed in
  windows of some steps; the clock is read at their edges only, after the devices have finished."""
RUNS = """\
Each run is one training in fresh processes. A round is one run of every arm, in shuffled order, so that drift of the
machine affects all arms alike.

- **Timing.** Warm-up steps are not timed. A barrier then starts the first timed window of all processes together. A
  window is a number of steps; the clock is read at its edges only, after the devices have finished."""
STATISTICS = """\
- **images/s** is the whole job's: examples over wall time, all windows together, never a mean of rates. A window of a
  synchronous job costs the time of its slowest process. Of an asynchronous job, the applied examples are counted, on
  the coordinator's clock. Of trainings without exchange, all are counted until the first of them is through.
- **Statistics.** The model is log images/s = arm + round + rest. The figure of an arm is its geometric mean over
  rounds; a speed-up is the ratio of two figures. The interval that is shown is the one that decides: an arm is faster
  or slower if its interval of the speed-up excludes 1. With fewer than 3 rounds there is no interval and no verdict.
- **Speed-up** is images/s over the baseline's; **efficiency** is the same per device. `independent` runs as many
  one-device trainings side by side without exchange: efficiency against it shows the cost of the strategy itself.
- **Losses.** Synchronous arms of the same work, seed, batch and number of replicas must have the same losses. An arm
  that has not is `wrong`, and is not ranked.
- **Costs.** Start-up: from the start of the slowest process to the end of its first step. CPU s per s: CPU seconds of
  all processes of the job, per second of its turns. Percentiles: of the windows' times per step of all devices. Memory
  is resident memory: at the end of the last window, and the peak over the life of the process, import and trace
  included. MB and GB are decimal."""


def method_of(rows: Iterable[ArmRow]) -> str:
    """Records without incarnations are of one training a round."""
    turns = any(record.incarnation for row in rows for record in row.records)
    return f"{TURNS if turns else RUNS}\n{STATISTICS}"
