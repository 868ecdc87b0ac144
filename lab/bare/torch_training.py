"""MobileNetV2 under DistributedDataParallel; each process prints the time at the end of its first step. For torchrun.

The model (https://arxiv.org/abs/1801.04381), its size and its batches are those of `tfdist launch --preset cpu`. Process
i of the host has the i-th core alone.
"""

import os

RANK = int(os.environ["LOCAL_RANK"])
CORES = sorted(os.sched_getaffinity(0))
os.sched_setaffinity(0, {CORES[RANK % len(CORES)]})

import time  # noqa: E402 - after the process has its core

import torch  # noqa: E402
from torch import nn  # noqa: E402

SIDE, CLASSES, BATCH = 96, 1000, 16
STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""Expansion, channels, blocks and the stride of the first block, of each stage."""


def convolution(inputs: int, outputs: int, size: int = 1, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    """A convolution and its batch normalization, with the constants of Keras."""
    return [
        nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs, eps=1e-3, momentum=1e-3),
    ]


class Block(nn.Module):
    """An inverted residual."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = inputs * expansion
        expand = [*convolution(inputs, hidden), nn.ReLU6(inplace=True)] if expansion > 1 else []
        depthwise = [*convolution(hidden, hidden, 3, stride, groups=hidden), nn.ReLU6(inplace=True)]
        self.layers = nn.Sequential(*expand, *depthwise, *convolution(hidden, outputs))
        self.residual = stride == 1 and inputs == outputs

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images + self.layers(images) if self.residual else self.layers(images)


def mobilenet_v2() -> nn.Module:
    """Images of shape (batch, 3, side, side) -> logits."""
    layers, inputs = [*convolution(3, 32, 3, 2), nn.ReLU6(inplace=True)], 32
    for expansion, outputs, blocks, first_stride in STAGES:
        for block in range(blocks):
            layers.append(Block(inputs, outputs, 1 if block else first_stride, expansion))
            inputs = outputs
    head = [*convolution(inputs, 1280), nn.ReLU6(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, *head, nn.Linear(1280, CLASSES))


def main() -> None:
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    torch.manual_seed(RANK)
    model = mobilenet_v2()
    if int(os.environ["WORLD_SIZE"]) > 1:
        torch.distributed.init_process_group("gloo")
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    images, labels = torch.rand(BATCH, 3, SIDE, SIDE), torch.randint(0, CLASSES, (BATCH,))
    loss = nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    loss.item()
    print(f"first step at {time.time()}\n", end="", flush=True)  # one write: the processes share a pipe
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
