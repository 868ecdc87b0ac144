"""Slurm's variables and commands, and the batch script as sbatch and a shell read it."""

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdist.launch.errors import TfdistError
from tfdist.launch.schedulers import slurm, table
from tfdist.launch.schedulers.slurm import SlurmJob, signal_time_s

HET = {
    "SLURM_JOB_NODELIST": "gpu[1-2]",
    "SLURM_HET_SIZE": "2",
    "SLURM_JOB_NODELIST_HET_GROUP_0": "gpu[1-2]",
    "SLURM_JOB_NODELIST_HET_GROUP_1": "cpu7",
}


def test_the_hosts_are_those_of_the_allocation_in_order():
    environ = {"SLURM_JOB_NODELIST": "gpu[09-10,03],login1"}
    assert slurm.nodes(environ) == ("gpu09", "gpu10", "gpu03", "login1")
    assert slurm.groups(environ) == {}


@pytest.mark.parametrize("environ", [{}, {"SLURM_JOB_NODELIST": ""}])
def test_outside_of_an_allocation_there_are_none(environ):
    with pytest.raises(TfdistError, match="salloc"):
        slurm.nodes(environ)


def test_a_heterogeneous_job_has_the_hosts_of_all_groups():
    of_salloc = {name: value for name, value in HET.items() if name != "SLURM_JOB_NODELIST"}
    for environ in (HET, of_salloc):
        assert slurm.groups(environ) == {"gpu1": 0, "gpu2": 0, "cpu7": 1}
        assert slurm.nodes(environ) == ("gpu1", "gpu2", "cpu7")


def test_a_node_of_two_groups_is_refused():
    shared = {**HET, "SLURM_JOB_NODELIST_HET_GROUP_1": "gpu2"}
    with pytest.raises(TfdistError, match="HET_GROUP_1 gpu2: also in group 0; request each group with --exclusive"):
        slurm.nodes(shared)


def test_a_group_without_a_list_of_nodes_is_named():
    missing = {name: value for name, value in HET.items() if not name.endswith("_1")}
    with pytest.raises(TfdistError, match="SLURM_JOB_NODELIST_HET_GROUP_1 '': no hosts"):
        slurm.nodes(missing)


def test_variables_that_change_a_step_leak_and_those_of_the_job_do_not():
    leaking = {
        "SLURM_CPUS_PER_TASK", "SRUN_CPUS_PER_TASK", "SLURM_TRES_PER_TASK", "SLURM_EXACT", "SLURM_NTASKS",
        "SLURM_NTASKS_PER_NODE", "SLURM_GPUS", "SLURM_GPUS_PER_NODE", "SLURM_GPU_BIND", "SLURM_MEM_PER_CPU",
        "SLURM_MEM_PER_NODE", "SLURM_MEM_BIND", "SLURM_HINT", "SLURM_THREADS_PER_CORE", "SLURM_DISTRIBUTION",
    }  # fmt: skip
    kept = {"SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_CONF", "SLURM_RESTART_COUNT", "PATH", "CUDA_VISIBLE_DEVICES"}
    assert set(table.leaking_variables(dict.fromkeys(leaking | kept, "1"))) == leaking


def test_srun_starts_a_step_with_all_of_the_node_beside_other_steps():
    argv = slurm.step("gpu07", None, ())
    assert argv[0] == "srun"
    assert {"--nodes=1", "--ntasks=1", "--overlap", "--cpu-bind=none", "--nodelist=gpu07"} <= set(argv)
    assert {"--mem=0", "--mpi=none", "--export=ALL"} <= set(argv)
    assert not any(word.startswith("--het-group") for word in argv)


def test_srun_starts_the_step_in_the_group_of_the_node():
    assert "--het-group=1" in slurm.step("cpu7", 1, ())
    assert "--het-group=0" in slurm.step("gpu1", 0, ())


def test_srun_does_not_see_the_variables_that_are_unset():
    argv = slurm.step("gpu07", None, ("SLURM_EXACT", "SLURM_NTASKS"))
    assert argv[:6] == ("env", "-u", "SLURM_EXACT", "-u", "SLURM_NTASKS", "srun")


CONFIG = "KillOnBadExit           = 0\nKillWait                = 45 sec\nLaunchParameters        = (null)\n"


def environ(folder, script):
    """A Slurm job on a machine with this `scontrol`."""
    tool = folder / "scontrol"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    return {"SLURM_JOB_ID": "7", "PATH": f"{folder}:/bin:/usr/bin"}


def test_outside_of_a_slurm_job_nothing_is_asked(tmp_path):
    variables = environ(tmp_path, f"touch {tmp_path}/asked")
    del variables["SLURM_JOB_ID"]
    assert table.kill_wait_s(variables) == 0.0
    assert not (tmp_path / "asked").exists()


def test_a_heterogeneous_job_is_a_slurm_job(tmp_path):
    variables = environ(tmp_path, "exit 1")
    del variables["SLURM_JOB_ID"]
    assert table.kill_wait_s({**variables, "SLURM_HET_SIZE": "2"}) == slurm.DEFAULT_KILL_WAIT_S


def test_slurm_says_how_long_it_waits(tmp_path, monkeypatch):
    variables = environ(tmp_path, f"[ \"$*\" = 'show config' ] && cat <<'END'\n{CONFIG}END")
    monkeypatch.setenv("PATH", variables["PATH"])
    assert table.kill_wait_s(variables) == 45.0


@pytest.mark.parametrize("script", ["echo 'slurm_load_ctl_conf error' >&2; exit 1", "sleep 60", "echo KillWait = soon"])
def test_without_an_answer_it_is_slurms_default(tmp_path, script, monkeypatch):
    monkeypatch.setattr("tfdist.launch.schedulers.slurm.ANSWER_S", 0.2)
    variables = environ(tmp_path, f"exec {script}" if script.startswith("sleep") else script)
    monkeypatch.setenv("PATH", variables["PATH"])
    assert table.kill_wait_s(variables) == slurm.DEFAULT_KILL_WAIT_S


def test_without_scontrol_it_is_slurms_default(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert table.kill_wait_s({"SLURM_JOB_ID": "7", "PATH": str(tmp_path)}) == slurm.DEFAULT_KILL_WAIT_S


COMMAND = ("tfdist", "launch", "--transport", "srun", "--", "python", "it's; a $HOME.py")


def test_the_shortest_script():
    assert SlurmJob(2).script("one", ("tfdist", "launch")) == (
        "#!/bin/bash\n#SBATCH --job-name=one\n#SBATCH --nodes=2\n#SBATCH --exclusive\nexec tfdist launch\n"
    )


def test_a_script_with_everything():
    job = SlurmJob(4, 8, exclusive=False, options=("time=1-0", "qos=high"))
    assert job.script("a b", COMMAND, requeue=True, signal_s=180).splitlines() == [
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


def test_only_a_value_that_sbatch_would_read_as_another_is_quoted():
    job = SlurmJob(1, options=("comment=a b", "comment=a#1", "comment=it's", "nodelist=h[1-4]", "exclusive"))
    lines = job.script("one", COMMAND).splitlines()
    assert lines[4:-1] == [
        "#SBATCH --comment='a b'",
        "#SBATCH --comment='a#1'",
        "#SBATCH --comment='it\\'s'",
        "#SBATCH --nodelist=h[1-4]",
        "#SBATCH --exclusive",
    ]


def words_of(line):
    """The words that sbatch reads on a line after #SBATCH: `get_argument` in Slurm's src/sbatch/opt.c, 21.08 to 26.05."""
    words, word, quote, rest = [], None, "", iter(line)
    for character in rest:
        if character == "\\":
            following = next(rest)
            assert quote or following != " ", "its meaning depends on the version"
            word = (word or "") + following
        elif character == quote:
            quote = ""
        elif not quote and character in "\"'":
            quote = character
        elif not quote and character in " \t\v\f\r":
            words, word = words if word is None else [*words, word], None
        elif not quote and character == "#":
            break
        else:
            word = (word or "") + character
    assert not quote, f"sbatch: fatal: Unmatched `{quote}` in [{line}]"
    return words if word is None else [*words, word]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--a 'b c'\"d\"", ["--a", "b cd"]),
        (r"--a=it\'s'\'' b# c", ["--a=it's'", "b"]),
        (r"'a\b\\' # 'c'", ["ab\\"]),
    ],
)
def test_the_model_of_sbatch(line, words):
    assert words_of(line) == words


PRINTABLE = st.text(
    st.sampled_from("a #'\"\\=:$`-\u00a0") | st.characters(codec="utf-8", categories=("L", "M", "N", "P", "S", "Zs"))
)


@given(PRINTABLE, PRINTABLE.filter(bool))
def test_sbatch_reads_each_value_as_it_was_given(name, value):
    lines = SlurmJob(1, options=(f"comment={value}",)).script(name, COMMAND).splitlines()
    read = [words_of(line.removeprefix("#SBATCH")) for line in lines if line.startswith("#SBATCH")]
    assert read == [[f"--job-name={name}"], ["--nodes=1"], ["--exclusive"], [f"--comment={value}"]]


def test_variables_for_other_commands_do_not_reach_the_job():
    lines = SlurmJob(1).script("one", COMMAND, unset=("TFDIST_HOSTS", "TFDIST_DETACH")).splitlines()
    assert lines[-2] == "unset TFDIST_HOSTS TFDIST_DETACH"


def test_the_shell_starts_the_command_with_these_words_and_the_scripts_pid(tmp_path):
    show = ("sh", "-c", 'printf "%s\\n" $$ "$@"', "sh", "it's; a $HOME", "")
    with subprocess.Popen(["bash"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as shell:
        out, _ = shell.communicate(SlurmJob(1).script("x", show), timeout=30)
    assert out.splitlines() == [str(shell.pid), "it's; a $HOME", ""]


def test_the_signal_comes_early_enough_for_the_grace_period():
    assert [signal_time_s(seconds) for seconds in (5.0, 120.0, 120.5, 600.0)] == [180, 180, 181, 660]


@pytest.mark.parametrize(
    ("name", "options"), [("x\ncommand #", ()), ("x\x85y", ()), ("x", ("qos=a\rb",)), ("x", ("a\u2028b",))]
)
def test_nothing_ends_the_comment_of_an_option(name, options):
    with pytest.raises(TfdistError, match=r"sbatch '.*\\.*': has a line break or another control character"):
        SlurmJob(1, options=options).script(name, COMMAND)
