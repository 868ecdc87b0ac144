"""MobileNetV2 under DistributedDataParallel of PyTorch: model, batches and optimizer of `tfdist launch --preset cpu`.

tfdist launch --strategy external --workers 2 -- python examples/peers/torch_ddp.py
tfdist bench --suite examples/peers/peers.toml

gloo on CPUs; one GPU was tried. Not run on hardware: NCCL, with a GPU for each process; CUDA graphs, which the modes
reduce-overhead and max-autotune of --compile use; --mixed bfloat16.
"""

import argparse
import json
import math
import os
import socket

import torch
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

import tfdist.measure

CLASSES = 1000
PARAMETERS = 3_504_872
"""Trainable ones, as many as `tf.keras.applications.MobileNetV2` has."""
STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""Expansion, channels, blocks and the stride of the first block, of each stage (https://arxiv.org/abs/1801.04381)."""


def convolution(inputs, outputs, size=1, stride=1, groups=1):
    """A convolution and its batch normalization, with the constants of Keras."""
    return [
        nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs, eps=1e-3, momentum=1e-3),
    ]


class Block(nn.Module):
    """An inverted residual."""

    def __init__(self, inputs, outputs, stride, expansion):
        super().__init__()
        hidden = inputs * expansion
        expand = [*convolution(inputs, hidden), nn.ReLU6(inplace=True)] if expansion > 1 else []
        depthwise = [*convolution(hidden, hidden, 3, stride, groups=hidden), nn.ReLU6(inplace=True)]
        self.layers = nn.Sequential(*expand, *depthwise, *convolution(hidden, outputs))
        self.residual = stride == 1 and inputs == outputs

    def forward(self, images):
        """The output, with the input added where the shapes allow it."""
        return images + self.layers(images) if self.residual else self.layers(images)


def mobilenet_v2(classes=CLASSES):
    """Images of shape (batch, 3, side, side) -> logits."""
    layers, inputs = [*convolution(3, 32, 3, 2), nn.ReLU6(inplace=True)], 32
    for expansion, outputs, blocks, first_stride in STAGES:
        for block in range(blocks):
            layers.append(Block(inputs, outputs, 1 if block else first_stride, expansion))
            inputs = outputs
    head = [*convolution(inputs, 1280), nn.ReLU6(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, *head, nn.Linear(1280, classes))


def connect():
    """Rank and number of processes, connected at the address that TF_CONFIG has for the first worker."""
    config = json.loads(os.environ.get("TF_CONFIG", '{"cluster": {"worker": ["127.0.0.1:0"]}, "task": {"index": 0}}'))
    workers, rank = config["cluster"]["worker"], config["task"]["index"]
    if len(workers) > 1:
        host, _, port = workers[0].rpartition(":")
        listener = None
        if rank == 0:
            listener = socket.socket()
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # tfdist holds the port until now
            listener.bind(("", int(port)))
            listener.listen()
        options = {} if listener is None else {"master_listen_fd": listener.detach()}
        store = torch.distributed.TCPStore(
            host.strip("[]"), int(port), len(workers), rank == 0, use_libuv=False, **options
        )
        backend = "nccl" if torch.cuda.is_available() else "gloo"
        torch.distributed.init_process_group(backend, store=store, rank=rank, world_size=len(workers))
    return rank, len(workers)


def arguments():
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--batch", type=int, default=16, help="of each process")
    parser.add_argument("--side", type=int, default=96, help="of the square images, pixels")
    types, modes = ("float16", "bfloat16"), ("default", "reduce-overhead", "max-autotune")
    parser.add_argument(
        "--mixed", nargs="?", const="float16", choices=types, help="compute in float16 or this type where that is safe"
    )
    parser.add_argument(
        "--compile", nargs="?", const="default", choices=modes, help="compile the model, in this mode of torch.compile"
    )
    parser.add_argument("--channels-last", action="store_true", help="memory format of images and weights")
    parser.add_argument(
        "--bucket-mb", type=float, help="gradients after which an all-reduce starts; default: PyTorch's"
    )
    parser.add_argument("--bucket-view", action="store_true", help="gradient_as_bucket_view and static_graph")
    parser.add_argument(
        "--fused", action="store_true", help="update all weights in one kernel; default: PyTorch's, on GPUs foreach"
    )
    parser.add_argument("--float16", action="store_true", help="exchange gradients in float16")
    return parser.parse_args()


def main():
    """Train until the launcher has measured enough, or `--steps`."""
    options = arguments()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    torch.set_flush_denormal(True)  # as TensorFlow does; else a third slower
    torch.backends.cuda.matmul.allow_tf32 = True  # as TensorFlow does; convolutions use it by default
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(0)
    rank, ranks = connect()
    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    memory_format = torch.channels_last if options.channels_last else torch.contiguous_format
    model = mobilenet_v2().to(device, memory_format=memory_format)
    parameters = sum(each.numel() for each in model.parameters())
    if parameters != PARAMETERS:
        raise SystemExit(f"the model has {parameters:,} parameters, not {PARAMETERS:,}")
    if ranks > 1:
        choices = {"gradient_as_bucket_view": True, "static_graph": True} if options.bucket_view else {}
        choices |= {"bucket_cap_mb": options.bucket_mb} if options.bucket_mb else {}
        model = nn.parallel.DistributedDataParallel(model, **choices)
        if options.float16:
            model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    if options.compile:
        model = torch.compile(model, mode=options.compile)
    mixed = getattr(torch, options.mixed or "float16")
    scaler = torch.amp.GradScaler(device.type, enabled=options.mixed == "float16")  # bfloat16 has the range of float32
    optimizer = torch.optim.Adam(model.parameters(), 1e-3, fused=options.fused or None)
    torch.manual_seed(1 + rank)
    shape = (options.batch, 3, options.side, options.side)
    images = torch.rand(shape).to(device, memory_format=memory_format)
    labels = torch.randint(0, CLASSES, (options.batch,)).to(device)
    losses = []
    for _ in tfdist.measure.steps(range(options.steps), examples=ranks * options.batch):
        optimizer.zero_grad(set_to_none=not options.bucket_view)
        with torch.autocast(device.type, mixed, enabled=options.mixed is not None):
            loss = nn.functional.cross_entropy(model(images), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses = [*losses[:1], loss.detach()]
    first, last = float(losses[0]), float(losses[-1])
    if not math.isfinite(last) or last >= first:
        raise SystemExit(f"the loss went from {first:.4f} to {last:.4f}: it does not train")
    if ranks > 1:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
