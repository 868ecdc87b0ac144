"""`tfdist manifest`: what its pods run, what it refuses, and that the pods accept their command line."""

import json
import os
import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.launch.kubernetes.kubelet import pods
from tfdist.cli.command import run
from tfdist.cli.manifest import to_yaml
from tfdist.launch.errors import TfdistError

GO = re.compile(
    r"""[-+]?[0-9_]+ | [-+]?0[box][0-9a-f_]+                            # strconv.ParseInt without underscores, base 0
    | [-+]?([.][0-9_]+ | [0-9_]+([.][0-9_]*)?)(e[-+]?[0-9_]+)?          # strconv.ParseFloat
    | [-+]?[.]inf | [.]nan | ~ | << | y | n | yes | no | on | off | true | false | null
    | ([0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt ].*)?)?""",
    re.VERBOSE | re.IGNORECASE,
)
"""Plain text that go-yaml (resolve.go of v2 and v3) may read as something else than a string."""


def written(text):
    """The scalar of a string."""
    document = to_yaml([{"value": text}])
    assert list(yaml.safe_load_all(document)) == [{"value": text}]
    assert document.startswith("---\nvalue: ")
    return document.removeprefix("---\nvalue: ").removesuffix("\n")


QUOTED = [
    "", "~", "null", "NULL", "y", "Y", "n", "yes", "No", "on", "OFF", "true", "False", "=", "<<", "<", "-", "--", "---",
    "0", "-1", "+1", "1_000", "007", "0o17", "0b11", "0x1F", "-0x1f", "12:30", "1.5", ".5", "1.", "1e3", "1e-3",
    "1e-05", "1.5e3", "12e5", "12345e67", "1E5", ".inf", "-.INF", ".NaN", "2026-01-01", "2026-01-01T00:00:00Z", "v=1",
    "- a", "a: b", "a:", "a #b", "#a", "*a", "&a", "!a", "{a}", "[a]", "a, b", "? a", "@a", "`a", "%a", "|", ">", " a",
    "a ", "a b", "a\tb", "a\n", "a\n---\nb", "a\r", "\x00", "\x1b[0m", "\x7f", "\x85", "\ufeff", "it's", 'a"b', "a\\b",
    "it's\n$(A)", "caf\u00e9", "\u2028", "\U0001f600", '{"a": 1}',
]  # fmt: skip


@pytest.mark.parametrize("text", QUOTED)
def test_what_is_not_plainly_a_word_is_in_quotes_and_in_one_line(text):
    assert re.fullmatch(r"'.*'|\".*\"", written(text))


@pytest.mark.parametrize(
    "text",
    ["training", "kubernetes.io/x", "registry/tfdist:1", "/tmp/runs", "--set", "gs://b/c", "A_1", "yn"],
)
def test_a_word_has_no_quotes(text):
    assert written(text) == text


def test_quotes_are_single_where_nothing_needs_an_escape():
    assert written('{"a": 1}') == """'{"a": 1}'"""
    assert written("it's\n") == r'''"it's\n"'''


@given(st.text() | st.from_regex(GO, fullmatch=True) | st.text(alphabet="0123456789eEboxXf_.+-:~yn'\"# \n"))
def test_any_string_stays_one(text):
    scalar = written(text)
    assert "\n" not in scalar  # kubectl splits documents before it reads quotes
    assert scalar[0] in "'\"" or not GO.fullmatch(scalar)


def test_other_values_are_not_strings():
    assert to_yaml([{"a": 1, "b": True, "c": None, "d": ["x", 2]}, {}]) == (
        "---\na: 1\nb: true\nc: null\nd:\n- x\n- 2\n--- {}\n"
    )


def test_bytes_that_are_not_utf_8_are_refused():
    with pytest.raises(TfdistError, match=r"^'caf\\udce9': not valid UTF-8; use UTF-8, as Kubernetes"):
        to_yaml([{"value": "caf\udce9"}])


IMAGE = ("manifest", "--image", "registry/tfdist:1")
OPTIONS = (
    "--name", "--namespace", "--kind", "--queue", "--pvc", "--secret", "--gpus", "--cpus", "--memory", "--image",
)  # fmt: skip
MULTI_WORKER = ("--strategy", "multiworker", "--workers", "2")
PARAMETER_SERVER = ("--workers", "2", "--ps", "1")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("TF_", "TFDIST_"))]:
        monkeypatch.delenv(name)


def line(*arguments):
    """A command line whose options are sorted into those of manifest and those of launch."""
    before, after, rest = [], [], list(arguments)
    while rest:
        if rest[0] == "--":
            after += rest
            break
        where = before if rest[0] in (*OPTIONS, "--no-network-policy") else after
        where.append(rest.pop(0))
        if where[-1] in OPTIONS:
            where.append(rest.pop(0))
    return [*IMAGE, *before, "launch", *after]


def objects_of(capsys, *arguments):
    assert run(line(*arguments)) == 0
    return list(yaml.safe_load_all(capsys.readouterr().out))


def words_of(capsys, *arguments):
    """The words that all pods get, without those that `tfdist launch` always gets."""
    found = pods(objects_of(capsys, *arguments))
    every = [pod.argv for pod in found]
    names = [words[words.index("--name") + 1] for words in every]
    assert names == [f"{pod.subdomain}-{pod.role}-{pod.index}" for pod in found]
    plain = {(*words[2 : words.index("--name")], *words[words.index("--name") + 2 :]) for words in every}
    (words,) = plain
    return " ".join(words)


def refusal(capsys, *arguments):
    assert run(line(*arguments)) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    return err.removeprefix("tfdist: ").rstrip("\n")


def test_stdout_is_the_manifest_and_stderr_says_what_was_decided(capsys):
    assert run(line("--workers", "2")) == 0
    out, err = capsys.readouterr()
    policy, jobset = out.removeprefix("---\n").split("---\n")
    assert policy.startswith("apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata:\n  name: training\n")
    assert jobset.startswith("apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata:\n  name: training\n")
    assert err == "strategy multiworker: 2 hosts\npreset cpu: no --gpus\n"
    assert "&id" not in out  # anchors
    assert max(map(len, (line for line in out.splitlines() if "TF_CONFIG" not in line and "cluster" not in line))) < 120


def test_a_pod_gets_the_options_that_were_given_and_those_that_depend_on_the_machine(capsys):
    assert words_of(capsys, *MULTI_WORKER) == (
        "--inherit tf-config --strategy multiworker --preset cpu --start-timeout 600 --runs-dir /tmp/runs"
    )
    assert words_of(
        capsys, *MULTI_WORKER, "--preset", "smoke", "--xla", "--set", "evaluate=false", "--set", "learning_rate=0.01"
    ) == (
        "--inherit tf-config --strategy multiworker --preset smoke --xla --set evaluate=false --set learning_rate=0.01 "
        "--start-timeout 600 --runs-dir /tmp/runs"
    )
    assert words_of(capsys, *MULTI_WORKER, "--gpus", "2", "--start-timeout", "60", "--set", "stop_on_nan=true") == (
        "--inherit tf-config --strategy multiworker --preset reference --devices 2 --start-timeout 60 "
        "--set stop_on_nan=true --runs-dir /tmp/runs"
    )


def test_options_come_from_the_environment_and_a_job_file_too(capsys, monkeypatch):
    monkeypatch.setenv("TFDIST_BATCH_SIZE", "7")
    Path("job.toml").write_text('workers = 3\noptimizer = "sgd"\n')
    found = pods(objects_of(capsys, "--config", "job.toml"))
    assert len(found) == 3
    assert "--batch-size 7 --set optimizer=sgd" in " ".join(found[0].argv)


def test_the_network_policy_can_be_switched_off(capsys):
    assert [each["kind"] for each in objects_of(capsys, "--no-network-policy")] == ["JobSet"]


def test_the_default_is_two_workers(capsys):
    assert [pod.role for pod in pods(objects_of(capsys))] == ["worker", "worker"]


def test_the_volume_holds_runs_and_checkpoints_from_which_a_restart_continues(capsys):
    volume = ("--pvc", "data", "--name", "mine")
    assert words_of(capsys, *PARAMETER_SERVER, *volume, "--preset", "smoke", "--checkpoint-every", "10m") == (
        "--inherit tf-config --strategy parameter-server --preset smoke --checkpoint-every 10m --start-timeout 600 "
        "--runs-dir /tfdist/mine/runs --checkpoint-dir /tfdist/mine/checkpoints --resume auto"
    )
    assert "--checkpoint-dir /tfdist/old --resume auto" in words_of(capsys, *volume, "--checkpoint-dir", "/tfdist/old")
    assert words_of(capsys, "--checkpoint-dir", "gs://b/c", "--set", "keep=2").endswith(
        "--set keep=2 --start-timeout 600 --runs-dir /tmp/runs --checkpoint-dir gs://b/c --resume auto"
    )


def test_a_program_gets_no_preset_and_resumes_by_itself(capsys):
    program = ("sh", "-c", "echo $$ $(HOME)", "--workers", "9")
    assert words_of(capsys, "--pvc", "data", *MULTI_WORKER, "--", *program) == (
        "--inherit tf-config --strategy multiworker --start-timeout 600 --runs-dir /tfdist/training/runs "
        "--checkpoint-dir /tfdist/training/checkpoints -- sh -c echo $$ $(HOME) --workers 9"
    )


def test_the_program_need_not_exist_here_nor_a_data_set(capsys):
    assert words_of(capsys, "--", "/opt/in/the/image").endswith("-- /opt/in/the/image")
    data = (
        "--dataset",
        "tfds:not_here",
        "--set",
        "data_dir=/tfdist/tfds",
        "--epochs",
        "3",
        "--set",
        "shuffle=9",
        "--set",
        "evaluate=true",
    )
    words = words_of(capsys, "--preset", "smoke", *data)
    settings = "--set data_dir=/tfdist/tfds --set shuffle=9 --set evaluate=true"
    assert f"--epochs 3 --dataset tfds:not_here {settings}" in words


def test_restarts_and_time_limits_are_those_of_the_jobset(capsys):
    (_, jobset) = objects_of(capsys, "--max-restarts", "3", "--timeout", "59.2", "--grace-period", "90.5")
    assert jobset["spec"]["failurePolicy"]["maxRestarts"] == 3
    (job,) = jobset["spec"]["replicatedJobs"]
    assert job["template"]["spec"]["activeDeadlineSeconds"] == 60
    (first, _) = pods([jobset])
    assert first.spec["terminationGracePeriodSeconds"] == 101
    words = " ".join(first.argv)
    assert "--grace-period 90.5" in words
    assert "--max-restarts" not in words
    assert "--timeout" not in words


def test_text_that_looks_like_a_number_or_a_boolean_is_in_quotes(capsys):
    def lines(*arguments):
        assert run(line(*arguments)) == 0
        return "\n".join(map(str.strip, capsys.readouterr().out.splitlines()))

    assert "- '0.5'\n" in lines(*MULTI_WORKER, "--grace-period", "0.5")
    out = lines("-x", "A=1e-3", "-x", "B=y", "--", "train", "0o17")
    assert "- name: A\nvalue: '1e-3'\n- name: B\nvalue: 'y'" in out
    assert "- train\n- '0o17'\n" in out


def test_a_value_that_is_not_utf_8_is_refused(capsys):
    sentence = "'caf\\udce9': not valid UTF-8; use UTF-8, as Kubernetes accepts nothing else"
    assert refusal(capsys, "-x", "A=caf\udce9") == sentence
    assert refusal(capsys, "--", "train", "caf\udce9") == sentence


def test_no_pod_gets_what_variables_have_set_for_other_commands(capsys, monkeypatch):
    for name, value in {
        "HOSTS": "h1,h2",
        "DETACH": "1",
        "INTERFACE": "eth1",
        "TRANSPORT": "ssh",
    }.items():
        monkeypatch.setenv(f"TFDIST_{name}", value)
    for command in (("launch",), ("bench",)):
        assert run(["manifest", "--image", "i", *command]) == 0
        text = capsys.readouterr().out
        assert not any(word in text for word in ("--hosts", "--detach", "--dry-run", "--interface", "--transport"))


def test_variables_are_copied_and_secrets_are_not(capsys, monkeypatch):
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    (first, *_) = pods(
        objects_of(capsys, "-x", "A=1 $(B)", "-x", "NCCL_*", "-x", "OMP_NUM_THREADS=1", "--secret", "keys")
    )
    assert (first.env["A"], first.env["NCCL_DEBUG"], first.env["OMP_NUM_THREADS"]) == ("1 $(B)", "INFO", "1")
    assert first.container["envFrom"] == [{"secretRef": {"name": "keys"}}]
    assert refusal(capsys, "-x", "API_TOKEN=abc") == (
        "--env API_TOKEN: looks like a secret, which a manifest must not hold; put it into a Secret, and name that with "
        "--secret"
    )
    sentence = refusal(capsys, "--", "python", "train.py", "--token", "abc")
    assert "-- python train.py --token ***: holds a secret, which others could read; put it into a Secret" in sentence


REFUSED = [
    (["--kind", "jobst"], "--kind jobst: did you mean jobset? Choose from jobset, job, trainjob"),
    (["--kind", "job", "--ps", "1"], "--kind job: all its pods are alike, and these have the roles chief, worker and ps"),
    (["--workers", "0"], "--workers 0: must be at least 1"),
    (["--workers", "-1"], "--workers -1: must be at least 1"),
    (["--workers", "1", "--strategy", "multiworker", "--batch-size", "0"], "--batch-size 0: must be at least 1"),
    (["--set", "evaluator=true"], "--set evaluator=true: a pod runs one task of TF_CONFIG; omit it"),
    (["--max-restarts", "1", "--min-workers", "1"], "--min-workers 1: all workers are restarted together; omit it"),
    (["--max-restarts", "1", "--set", "restart_on=any"], "--set restart_on=any: all pods are restarted after each preemption"),
    (["--resume", "last"], "--resume last: a job continues from what its --checkpoint-dir holds; omit --resume"),
    (["--resume", "auto"], "--resume auto: the pods have no common folder; add --pvc CLAIM, or --checkpoint-dir with a"),
    (["--checkpoint-every", "9"], "--checkpoint-every 9: the pods have no common folder; add --pvc CLAIM"),
    (["--checkpoint-dir", "c"], "--checkpoint-dir c: not on a volume of the pods; add --pvc CLAIM, or use a URL (gs://"),
    (["--pvc", "data", "--checkpoint-dir", "c"], "--checkpoint-dir c: not on a volume of the pods; give a folder below /"),
    (["--checkpoint-every", "9", "--", "true"], "--checkpoint-every 9 is for the built-in training, but a COMMAND"),
    (["--preset", "smoke", "--", "true"], "--preset smoke is for the built-in training"),
    (["--preset", "smok"], "--preset smok: did you mean smoke?"),
    (["--dataset", "nothing"], "--dataset nothing: unknown"),
    (["--dataset", "digits", "--set", "classes=3"], "--set classes=3: digits has 10 classes"),
    (["--timeout", "0"], "--timeout 0: must be positive"),
    (["-x", "TF_CONFIG={}"], "--env TF_CONFIG: tfdist sets it for every task"),
    (["-x", "TFDIST_INDEX=1"], "--env TFDIST_INDEX: the manifest sets it; omit it"),
    (["-x", "TF_USE_LEGACY_KERAS=0"], "--env TF_USE_LEGACY_KERAS=0: the built-in training sets it; use --keras 2 or 3"),
    (["--devices", "2"], "--devices 2: without GPUs MultiWorkerMirroredStrategy uses one device of each worker"),
    (["--devices", "2", "--gpus", "4"], "--devices 2: a worker uses all of its --gpus 4; omit --devices"),
    (["--ps", "1", "--gpus", "2"], "--gpus 2: the chief has no GPU, and plans for one device of each worker then; use --"),
    (["--ps", "1", "--gpus", "1", "--set", "gpu_threads=gpu_private"], "the chief has no GPU and would refuse: --set gpu_threads"),
    (["--strategy", "in-graph"], "--strategy in-graph without ps: in a TF_CONFIG without ps, the chief is a worker; add "),
    (["--communication", "nccl"], "--communication nccl needs GPUs, and none was found"),
    (["--hosts", "a"], "--hosts a: the pods are the hosts; omit it"),
    (["--set", "cores_per_device=2"], "--set cores_per_device"),
    (["--dry-run"], "--dry-run: manifest prints how to run the command, and starts nothing; omit it"),
    (["--runs-dir", "d"], "--runs-dir d: has no effect with manifest; omit it"),
    (["--interface", "eth1"], "--interface eth1: has no effect with manifest; omit it"),
    (["--launcher-timeout", "30"], "--launcher-timeout 30: has no effect with manifest; omit it"),
    (["--strategy", "mirrored", "--devices", "9", "--gpus", "8"], "9 devices (1 worker x 9) but only 8 GPUs"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), REFUSED, ids=lambda value: " ".join(value))
def test_what_cannot_work_in_pods_is_refused(arguments, message, capsys):
    assert refusal(capsys, *arguments).startswith(message)


def test_the_image_is_required(capsys):
    assert run(["manifest", "launch"]) == 2
    assert capsys.readouterr().err == "tfdist: --image: missing option; give the container image that the pods run\n"


ACCEPTED = [
    (*MULTI_WORKER, "--preset", "smoke", "--pvc", "data", "--checkpoint-every", "20", "--timeout", "60"),
    (*PARAMETER_SERVER, "--preset", "smoke", "--pvc", "data", "--checkpoint-every", "20", "--max-restarts", "1"),
    (*PARAMETER_SERVER, "--preset", "smoke", "--dataset", "digits", "--epochs", "2", "--stall-timeout", "0"),
    (*MULTI_WORKER, "--kind", "job", "--", "true"),
    (*MULTI_WORKER, "--kind", "trainjob", "--max-restarts", "1", "--", "true"),
    ("--strategy", "between-graph", "--sync", *PARAMETER_SERVER, "--preset", "smoke"),
    ("--strategy", "in-graph", *PARAMETER_SERVER, "--preset", "smoke"),
    (*PARAMETER_SERVER, "-x", "A=$(B)", "--keras", "3", "--", "sh", "-c", "echo $$"),
]


@pytest.mark.parametrize("arguments", ACCEPTED, ids=" ".join)
def test_each_pod_accepts_its_command_line_and_plans_its_task(arguments, capsys, monkeypatch):
    found = pods(objects_of(capsys, *arguments))
    for pod in found:
        with monkeypatch.context() as patch:
            for name, value in pod.env.items():
                patch.setenv(name, value)
            assert pod.argv[:2] == ("tfdist", "launch")
            assert run(["launch", "--dry-run", "--json", *pod.argv[2:]]) == 0
        (task,) = json.loads(capsys.readouterr().out)["tasks"]
        assert task["task"] == f"{pod.role}-{pod.index}"
        assert task["cores"] == []  # others may have tasks on the same node
        assert json.loads(task["env"]["TF_CONFIG"]) == json.loads(pod.env["TF_CONFIG"])
        assert "TF_NUM_INTRAOP_THREADS" not in task["env"]


ONE_POD = [
    (["--gpus", "8"], ["--strategy", "mirrored"], "--strategy mirrored --preset reference --devices 8"),
    ([], ["--strategy", "mirrored", "--devices", "3"], "--strategy mirrored --preset cpu --devices 3"),
    ([], ["--strategy", "independent", "--workers", "3"], "--strategy independent --preset cpu --workers 3"),
    (["--gpus", "1"], ["--strategy", "one-device", "--preset", "cpu"], "--strategy one-device --preset cpu"),
]


@pytest.mark.parametrize(("options", "arguments", "words"), ONE_POD, ids=str)
def test_a_strategy_without_a_cluster_runs_in_one_pod(options, arguments, words, capsys):
    (pod,) = pods(objects_of(capsys, *options, *arguments))
    assert f"launch {words} --start-timeout 600" in " ".join(pod.argv)
    assert "TF_CONFIG" not in pod.env
    if options:
        assert pod.container["resources"]["limits"]["nvidia.com/gpu"] == options[1]


def test_the_pod_of_a_strategy_without_a_cluster_accepts_its_command_line(capsys, monkeypatch):
    (pod,) = pods(objects_of(capsys, "--strategy", "mirrored", "--devices", "2", "--preset", "smoke"))
    for name, value in pod.env.items():
        monkeypatch.setenv(name, value)
    assert run(["launch", "--dry-run", "--json", *pod.argv[2:]]) == 0
    (task,) = json.loads(capsys.readouterr().out)["tasks"]
    assert task["task"] == "worker-0"


def test_a_bench_runs_in_one_pod_and_keeps_its_results_on_the_volume(capsys):
    assert run([*IMAGE, "--gpus", "2", "--pvc", "data", "bench", "--suite", "gpu", "--rounds", "3"]) == 0
    (pod,) = pods(list(yaml.safe_load_all(capsys.readouterr().out)))
    assert " ".join(pod.argv) == "tfdist bench --out /tfdist/training/bench --suite gpu --rounds 3"
    assert run([*IMAGE, "bench", "--suite", "smoke"]) == 0
    out, err = capsys.readouterr()
    (pod,) = pods(list(yaml.safe_load_all(out)))
    assert pod.argv[:4] == ("tfdist", "bench", "--out", "/tmp/bench")
    assert "no --pvc: the results end with the pod" in err
    assert run([*IMAGE, "--pvc", "data", "bench", "--", "true", "--out", "x", "--inherit"]) == 0
    (pod,) = pods(list(yaml.safe_load_all(capsys.readouterr().out)))
    assert " ".join(pod.argv) == "tfdist bench --out /tfdist/training/bench -- true --out x --inherit"
    assert "TF_CONFIG" not in pod.env
