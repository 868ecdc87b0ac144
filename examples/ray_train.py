"""A training with Ray Train, whose workers each run `tfdist launch --inherit auto`.

    ray job submit --working-dir examples -- python ray_train.py 2 --preset smoke
"""

import subprocess
import sys

from ray.train import ScalingConfig
from ray.train.tensorflow import TensorflowTrainer


def launch(config):
    command = [sys.executable, "-m", "tfdist", "launch", "--inherit", "auto", *config["arguments"]]
    subprocess.run(command, check=True)


workers = ScalingConfig(num_workers=int(sys.argv[1]), placement_strategy="STRICT_SPREAD")
TensorflowTrainer(launch, train_loop_config={"arguments": sys.argv[2:]}, scaling_config=workers).fit()
