"""Folders of benches that never ran."""

import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.bench.conftest import HARDWARE, record, save_record
from tfdist.models.record import Record

STEP_S = {"one-device": 0.1, "mirrored/auto": 0.12, "multiworker/ring": 0.13}


def save_bench(
    root: Path,
    slower: Mapping[str, float] | None = None,
    seed: int = 0,
    rounds: int = 8,
    machine: Mapping[str, Any] | None = None,
    spec: Mapping[str, Any] | None = None,
    arms: Mapping[str, float] = STEP_S,
    day: int = 1,
    speed: float = 1.0,
) -> Path:
    """Arms with 1 % noise of turns; `slower`: arm -> factor of its step time."""
    draw, number = random.Random(seed), 0
    for round_ in range(1, rounds + 1):
        for arm, step_s in arms.items():
            number += 1
            seconds = step_s * (slower or {}).get(arm, 1.0) * draw.lognormvariate(0, 0.01) / speed
            values = dict(spec or {}) if arm != "one-device" else {}
            one = _record(arm, seconds, round_, number, values)
            one = replace(one, hardware={**HARDWARE, **(machine or {})}, started=f"2026-01-{day:02d}T00:00:00+00:00",
                          git_commit=f"{day:040x}")  # fmt: skip
            save_record(root, one)
    return root


def _record(arm: str, seconds: float, round_: int, order: int, spec: Mapping[str, Any]) -> Record:
    times, strategy = [[seconds] * 3], arm.partition("/")[0]
    if strategy == "multiworker":
        return record(arm, times * 2, round=round_, strategy=strategy, workers=2, order=order, **spec)
    devices = 2 if strategy == "mirrored" else 1
    return record(
        arm, times, round=round_, strategy=strategy, devices=devices, examples=10 * devices, order=order, **spec
    )
