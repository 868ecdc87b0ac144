"""Plans for two simulated GPUs: a fake nvidia-smi and device files."""

import pytest

from tfdist.cli.command import run
from tfdist.launch.agent_program import gpus

SMI = """#!/bin/sh
case $1 in
-L) printf 'GPU 0: NVIDIA A100 (UUID: GPU-aa)\\nGPU 1: NVIDIA A100 (UUID: GPU-bb)\\n' ;;
--query-gpu=*) printf 'GPU-aa, 40960, 00000000:3B:00.0\\nGPU-bb, 40960, 00000000:AF:00.0\\n' ;;
esac
"""


@pytest.fixture
def plan(capsys, monkeypatch, tmp_path):
    """A function that returns the exit code and all output of `launch --dry-run` with these options."""
    for index in range(2):
        (tmp_path / f"nvidia{index}").touch()
    monkeypatch.setattr(gpus, "GPU_DEVICES", str(tmp_path / "nvidia[0-9]*"))
    (tmp_path / "nvidia-smi").write_text(SMI)
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    def launch(*options, visible=None):
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        code = run(["launch", "--dry-run", "--preset", "smoke", *options])
        return code, "".join(capsys.readouterr())

    return launch


def test_workers_with_gpus_use_nccl_and_a_note_says_so(plan):
    code, text = plan("--strategy", "multiworker", "--set", "gpu_threads=gpu_private")
    assert code == 0
    assert "communication nccl: all workers have GPUs" in text
    assert text.count("TF_GPU_THREAD_MODE=gpu_private") == 2
    assert "CUDA_VISIBLE_DEVICES=0" in text
    assert "CUDA_VISIBLE_DEVICES=1" in text


def test_one_gpu_is_cut_for_two_workers(plan):
    code, text = plan("--strategy", "multiworker", "--set", "logical_gpus=2", visible="1")
    assert code == 0
    assert "communication ring: NCCL accepts each physical GPU once" in text
    assert text.count("CUDA_VISIBLE_DEVICES=1") == 2


@pytest.mark.parametrize(
    ("options", "visible", "words"),
    [
        (
            ["--set", "logical_gpus=2"],
            None,
            "--set logical_gpus=2 cuts one GPU, and 2 GPUs can be used: choose one with CUDA_",
        ),
        (["--set", "logical_gpus=2"], "-1", "--set logical_gpus=2 cuts one GPU, and 0 GPUs can be used"),
        (["--set", "gpu_threads=gpu_private"], "-1", "--set gpu_threads=gpu_private needs GPUs, and none was found"),
        (
            ["--set", "logical_gpus=2", "--strategy", "mirrored", "--cross-device", "nccl"],
            "0",
            "--cross-device nccl: NCCL",
        ),
    ],
)
def test_what_these_gpus_cannot_do_is_refused(options, visible, words, plan):
    code, text = plan(*options, visible=visible)
    assert code == 2
    assert words in text
