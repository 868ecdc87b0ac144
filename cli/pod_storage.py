"""Where the pods of a manifest keep their runs and the checkpoints of the job."""

from tfdist.cli.plan_recovery import refuse_for_command
from tfdist.cli.recovery_options import AUTO, Recovery
from tfdist.launch.errors import TfdistError
from tfdist.launch.kubernetes.options import VOLUME, KubernetesOptions

_LOCAL_RUNS = "/tmp/runs"


def storage_words(recovery: Recovery, options: KubernetesOptions, *, own: bool) -> list[str]:
    """Options of `tfdist launch` in each pod. The pods of a restart continue from the job's checkpoints.

    Args:
        recovery: what was given.
        options: has the volume.
        own: the program is the user's, and restores what it has saved by itself.

    Raises:
        TfdistError: an option about checkpoints cannot work in pods.
    """
    if own:
        refuse_for_command(recovery)
    if recovery.resume not in (None, AUTO):
        raise TfdistError(
            f"{recovery.words['resume']}: a job continues from what its --checkpoint-dir holds; omit --resume"
        )
    folder = _checkpoint_folder(recovery, options)
    runs = ["--runs-dir", _LOCAL_RUNS if options.folder is None else f"{options.folder}/runs"]
    if folder is not None:
        return [*runs, "--checkpoint-dir", folder, *([] if own else ["--resume", AUTO])]
    for name in ("checkpoint_every", "keep", "resume"):
        if name in recovery.words:
            raise TfdistError(
                f"{recovery.words[name]}: the pods have no common folder; add --pvc CLAIM, or --checkpoint-dir with a "
                "URL (gs://...)"
            )
    return runs


def _checkpoint_folder(recovery: Recovery, options: KubernetesOptions) -> str | None:
    """None: the job is not saved."""
    folder = recovery.folder
    if folder is None:
        return None if options.folder is None else f"{options.folder}/checkpoints"
    mounted = options.pvc is not None
    if "://" in folder or (mounted and folder.startswith(f"{VOLUME}/")):
        return folder
    fix = f"give a folder below {VOLUME}, where the volume is mounted," if mounted else "add --pvc CLAIM,"
    raise TfdistError(f"{recovery.words['checkpoint_dir']}: not on a volume of the pods; {fix} or use a URL (gs://...)")
