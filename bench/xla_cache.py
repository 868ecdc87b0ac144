"""XLA's programs of a bench: the later starts of an arm read what its first start has compiled (TensorFlow's cache)."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tfdist.jobs.plan import Planned, plan
from tfdist.models.spec import XLA_CACHE, TrainingSpec

FLAGS = "TF_XLA_FLAGS"


@contextmanager
def temporary(folder: Path) -> Iterator[None]:
    """Begin without programs, and leave none: TensorFlow's key of a program says nothing of its version, of the device
    model and of XLA_FLAGS, which may be others when a bench is resumed."""
    shutil.rmtree(folder, ignore_errors=True)
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def with_cache(planned: Planned, folder: Path) -> Planned:
    """The job of an arm whose tasks read and write XLA's programs in this folder, which TensorFlow creates.

    The same job if it does not compile with XLA, if a task is on another host, and if the user's TF_XLA_FLAGS set a
    cache or name a file of flags.
    """
    spec, flags = planned.spec, {**planned.request.environ, **planned.request.env}.get(FLAGS, "").strip()
    compiled_here = isinstance(spec, TrainingSpec) and spec.xla and all(host.local for host in planned.job.hosts)
    if not compiled_here or XLA_CACHE in flags or (flags and not flags.startswith("-")):
        return planned
    path = str(folder.absolute()).replace("\\", "\\\\").replace('"', '\\"')
    variables = {**planned.request.env, FLAGS: f'{flags} {XLA_CACHE}="{path}"'.strip()}
    return plan(replace(planned.request, env=variables), planned.machines)
