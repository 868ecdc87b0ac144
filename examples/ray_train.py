"""A training with Ray Train, whose N workers run `tfdist launch --inherit auto` with the options after N.

    ray job submit --working-dir examples -- python ray_train.py 2 --preset smoke --runs-dir /shared/runs

Name folders outside of the working folder: Ray deletes it.
"""

import subprocess
import sys

from ray.train import ScalingConfig
from ray.train.tensorflow import TensorflowTrainer


def launch(arguments):
    """Run the task that TF_CONFIG names, which Ray Train has set."""
    subprocess.run([sys.executable, "-m", "tfdist", "launch", "--inherit", "auto", *arguments["tfdist"]], check=True)


workers = ScalingConfig(num_workers=int(sys.argv[1]), placement_strategy="STRICT_SPREAD")
TensorflowTrainer(launch, train_loop_config={"tfdist": sys.argv[2:]}, scaling_config=workers).fit()
