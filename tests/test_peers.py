"""The suites of examples/peers, and the options of its PyTorch program, with a stand-in for PyTorch."""

import runpy
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock, call

import pytest

import tfdist.measure
from tfdist.bench.suites.arm import Arm
from tfdist.bench.suites.arms import resolve_arms
from tfdist.bench.suites.suite import load_suite
from tfdist.launch.machine import Machine, local_machines

PEERS = Path("examples/peers")
SUITES = sorted(PEERS.glob("*.toml"))
PROGRAM = PEERS / "torch_ddp.py"
GPU = Machine(tuple(range(16)), ("NVIDIA H200",), ("0",))
PYTORCH = [arm for arm in load_suite(str(PEERS / "gpu.toml")).arms if str(PROGRAM) in arm.command]


@pytest.mark.parametrize("path", SUITES, ids=lambda path: path.stem)
def test_every_arm_can_be_planned(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torch", "jax"):
        (tmp_path / f"{name}.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    suite = load_suite(str(path))
    arms = resolve_arms(suite.arms, local_machines(GPU if path.stem == "gpu" else Machine((0, 1), ())), suite.preset)
    assert arms.refused == {}
    assert [*arms.specs] == [arm.name for arm in suite.arms]


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> MagicMock:
    """A stand-in for PyTorch on one GPU, whose loss falls."""
    torch = MagicMock()
    torch.device = lambda kind, index=0: SimpleNamespace(type=kind)
    torch.nn.Module = type("Module", (), {})
    model = torch.nn.Sequential.return_value.to.return_value
    model.parameters.return_value = [SimpleNamespace(numel=lambda: 3_504_872)]
    torch.nn.functional.cross_entropy.return_value.detach.side_effect = [7.0, 6.0]
    hooks = "torch.distributed.algorithms.ddp_comm_hooks"
    for name in ("torch", "torch.distributed", "torch.distributed.algorithms", hooks):
        monkeypatch.setitem(sys.modules, name, torch)
    monkeypatch.delenv("TF_CONFIG", raising=False)
    monkeypatch.setattr(tfdist.measure, "steps", lambda steps, examples: steps)
    return torch


@pytest.mark.parametrize("arm", PYTORCH, ids=lambda arm: arm.name)
def test_an_arm_of_pytorch_trains_as_its_name_says(arm: Arm, torch: MagicMock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [*arm.command[1:], "--steps", "2"])
    runpy.run_path(str(PROGRAM), run_name="__main__")
    parts = arm.name.split("/")
    modes = {"compile": "default", "reduce-overhead": "reduce-overhead", "max-autotune": "max-autotune"}
    model = torch.nn.Sequential.return_value.to.return_value
    assert torch.compile.mock_calls[:1] == [call(model, mode=modes[part]) for part in parts if part in modes]
    torch.amp.GradScaler.assert_called_once_with("cuda", enabled="mixed" in parts)
    low = torch.bfloat16 if "bfloat16" in parts else torch.float16
    assert torch.autocast.mock_calls[0] == call("cuda", low, enabled=bool({"mixed", "bfloat16"} & {*parts}))
    (adam,) = torch.optim.Adam.call_args_list
    assert adam.kwargs == {"fused": None if parts == ["pytorch"] or "foreach" in parts else True}
    assert torch.rand.call_args == call((256 if parts[0] == "256" else 64, 3, 224, 224))


def test_an_unknown_mode_is_refused(torch: MagicMock, monkeypatch, capsys) -> None:
    monkeypatch.setattr(sys, "argv", [str(PROGRAM), "--compile", "faster"])
    with pytest.raises(SystemExit, match="2"):
        runpy.run_path(str(PROGRAM), run_name="__main__")
    assert "invalid choice: 'faster'" in capsys.readouterr().err
