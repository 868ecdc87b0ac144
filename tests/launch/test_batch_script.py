import subprocess

import pytest

from tfdist.launch.batch_script import BatchScript, parse_option, signal_time_s
from tfdist.launch.errors import TfdistError

COMMAND = ("tfdist", "launch", "--transport", "srun", "--", "python", "it's; a $HOME.py")


def test_the_shortest_script():
    assert str(BatchScript("one", ("tfdist", "launch"), 2)) == (
        "#!/bin/bash\n#SBATCH --job-name=one\n#SBATCH --nodes=2\n#SBATCH --exclusive\nexec tfdist launch\n"
    )


def test_a_script_with_everything():
    script = BatchScript("a b", COMMAND, 4, False, 8, True, 180, ("time=1-0", "qos=high"))
    assert str(script).splitlines() == [
        "#!/bin/bash",
        "#SBATCH --job-name='a b'",
        "#SBATCH --nodes=4",
        "#SBATCH --gpus-per-node=8",
        "#SBATCH --requeue",
        "#SBATCH --open-mode=append",
        "#SBATCH --signal=B:USR2@180",
        "#SBATCH --time=1-0",
        "#SBATCH --qos=high",
        """exec tfdist launch --transport srun -- python 'it'"'"'s; a $HOME.py'""",
    ]


def test_the_shell_starts_the_command_with_these_words_and_the_scripts_pid(tmp_path):
    show = ("sh", "-c", 'printf "%s\\n" $$ "$@"', "sh", "it's; a $HOME", "")
    with subprocess.Popen(["bash"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as shell:
        out, _ = shell.communicate(str(BatchScript("x", show, 1)), timeout=30)
    assert out.splitlines() == [str(shell.pid), "it's; a $HOME", ""]


def test_the_signal_comes_early_enough_for_the_grace_period():
    assert [signal_time_s(seconds) for seconds in (5.0, 120.0, 120.5, 600.0)] == [180, 180, 181, 660]


def test_options_of_sbatch_are_written_with_hyphens_or_without():
    assert [parse_option(text) for text in ("qos=high", "--mem=1G", "contiguous", "comment=a b")] == [
        "qos=high", "mem=1G", "contiguous", "comment=a b",
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["", "-p gpu", "p gpu", "=x", "qos=", "qos=a\n#SBATCH --nodes=9", "--"])
def test_what_is_no_long_option_is_refused(text):
    with pytest.raises(TfdistError, match=r"--sbatch-option .*: not NAME or NAME=VALUE; use a long option"):
        parse_option(text)


def test_an_option_that_tfdist_has_itself_is_refused():
    with pytest.raises(TfdistError, match="--sbatch-option nodes=3: use --nodes"):
        parse_option("nodes=3")


@pytest.mark.parametrize(
    ("name", "options"), [("x\ncommand #", ()), ("x\x85y", ()), ("x", ("qos=a\rb",)), ("x", ("a\u2028b",))]
)
def test_nothing_ends_the_comment_of_an_option(name, options):
    with pytest.raises(TfdistError, match=r"sbatch '.*\\.*': has a line break or another control character"):
        BatchScript(name, COMMAND, 1, options=options)
