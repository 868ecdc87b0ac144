"""A request on its machines -> the complete and checked spec: presets, defaults, strategy table, data, refusals."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

from tfdist.jobs.presets import Choice, resolve, resolve_strategy
from tfdist.jobs.recovery import AUTO
from tfdist.jobs.request import Request, Size
from tfdist.launch.errors import TfdistError
from tfdist.launch.job import Program
from tfdist.launch.json_files import read_bytes
from tfdist.launch.machine import Machines, combined
from tfdist.launch.supervision.restarts import SavedState
from tfdist.models.collectives.spec import CollectiveSpec
from tfdist.models.spec import TrainingSpec
from tfdist.strategies.choice import StrategyChoice
from tfdist.strategies.options import LEGACY_KERAS, option_text

Spec = TypeVar("Spec", bound=StrategyChoice)


def choose(request: Request, machines: Machines) -> Choice[Any]:
    """What the request describes on these machines: a TrainingSpec, a StrategyChoice for a program, a CollectiveSpec.

    Raises:
        TfdistError: an option is invalid, does not work here, or would have no effect.
    """
    machine = combined(machines)
    servers = sum(machine.slots or 1 for host, machine in machines.items() if host.role == "ps")
    # a suite sets the number of parameter servers of each arm
    choices = {"ps": servers, **request.choices} if servers and not request.paced else request.choices
    chosen: Choice[Any]
    if request.own:
        _refuse_training_options(choices)
        chosen = resolve_strategy(choices, machine, request.base)
    elif request.collective is not None:
        chosen = resolve_strategy(choices, machine)
        chosen = replace(chosen, spec=CollectiveSpec(**vars(chosen.spec), **request.collective))
    else:
        chosen = _choose_training(replace(request, choices=choices), machines)
    if request.pinned or choices.get("cores_per_device") is not None:
        return chosen
    spec: Any = replace(chosen.spec, cores_per_device=None)
    return replace(chosen, spec=spec)


def _choose_training(request: Request, machines: Machines) -> Choice[TrainingSpec]:
    if LEGACY_KERAS in request.env:
        raise TfdistError(
            f"--env {LEGACY_KERAS}={request.env[LEGACY_KERAS]}: the built-in training sets it; use --keras 2 or 3"
        )
    base = request.base if isinstance(request.base, TrainingSpec) else None
    choices = {**request.choices, "preset": None}
    chosen = resolve(choices, combined(machines), request.choices.get("preset"), base)
    spec, changed = _with_all_examples(chosen.spec, request)
    return replace(chosen, spec=spec, notes=(*chosen.notes, *changed))


def _with_all_examples(spec: TrainingSpec, request: Request) -> tuple[TrainingSpec, tuple[str, ...]]:
    """The spec of a training that is resumed with another number of workers: on as many examples, unless its length was
    chosen; and a note. What `--resume auto` finds is as long as it was when it lost workers.
    """
    base = request.base
    newest = None if request.source is None else request.source.newest
    if newest is None or not isinstance(base, TrainingSpec):
        return spec, ()
    chosen = {"steps", "epochs"} & set(request.choices)
    again = request.recovery.resume == AUTO and base.examples is not None  # the command of a job that has lost workers
    if chosen and not again:
        if "steps" in chosen or not spec.synchronous:
            return spec, ()
        base = replace(base, examples=spec.steps * spec.global_batch_size)
    size = Size(spec.workers, spec.ps, SavedState(newest.step, newest.examples))
    kept = resized(base, size)
    if kept.global_batch_size == base.global_batch_size and not again:
        return spec, ()
    spec = replace(spec, steps=kept.steps, examples=kept.examples)
    return spec, tuple(filter(None, [effect(base, spec, size.saved)]))


def resized(spec: Spec, size: Size) -> Spec:
    """The spec of a job that goes on with this size.

    The batch per replica, the learning rate and the number of examples in all stay; so the global batch and the steps
    change. Under an asynchronous strategy a step is the batch of one worker, and its number stays too.
    """
    new = replace(spec, workers=size.workers, ps=size.ps)
    if not isinstance(new, TrainingSpec) or not isinstance(spec, TrainingSpec) or not spec.synchronous:
        return new
    # earlier steps may have had another batch
    left = (spec.steps - size.saved.step) * spec.global_batch_size
    examples = size.saved.examples + left if spec.examples is None else spec.examples
    new = replace(new, examples=examples)
    return replace(new, steps=size.saved.step + _steps_left(new, size.saved))


def effect(old: StrategyChoice, new: StrategyChoice, saved: SavedState) -> str:
    """What is different in the training, as in `global batch 64 instead of 96, 400 steps left instead of 267`."""
    if not isinstance(old, TrainingSpec) or not isinstance(new, TrainingSpec) or new.examples is None:
        return ""
    if old.global_batch_size == new.global_batch_size:
        return ""
    before = replace(old, examples=new.examples)
    return (
        f"global batch {new.global_batch_size} instead of {old.global_batch_size}, "
        f"{_steps_left(new, saved)} steps left instead of {_steps_left(before, saved)}"
    )


def _steps_left(spec: TrainingSpec, saved: SavedState) -> int:
    return -(-((spec.examples or 0) - saved.examples) // spec.global_batch_size)


def _refuse_training_options(choices: Mapping[str, Any]) -> None:
    """Refuse options that only the built-in training has."""
    stray = sorted(set(choices) - {each.name for each in fields(StrategyChoice)})
    if stray:
        raise TfdistError(
            f"{option_text(stray[0], choices[stray[0]])} is for the built-in training, but a COMMAND was given: "
            "omit it, or write it after the program if it is an option of the program"
        )


def program_notes(program: Program, choices: Mapping[str, Any]) -> Iterator[str]:
    """Notes on the environment of a Python program that the user did not choose: which Keras `tf.keras` is."""
    imports_keras = re.search(r"^\s*(import|from) keras\b", _source(program.argv), re.MULTILINE)
    if program.python and "keras" not in choices and LEGACY_KERAS not in program.env and not imports_keras:
        yield "tf.keras is tf_keras (Keras 2) in the program; choose Keras 3 with --keras 3"


def _source(words: tuple[str, ...]) -> str:
    """The text of the program that `python WORDS` runs; empty if it cannot be read here."""
    if words[:1] == ("-c",):
        return " ".join(words[1:2])
    try:
        return read_bytes(words[0]).decode(errors="replace")
    except (OSError, IndexError, ValueError):
        return ""
