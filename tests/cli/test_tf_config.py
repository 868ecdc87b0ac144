import json

from tfdist.cli.command import run


def test_every_task_is_printed_as_shell_commands(capsys):
    assert run(["tf-config", "--strategy", "multiworker", "--workers", "2", "--port", "5000"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0::2] == ["# worker:0", "# worker:1"]
    values = [json.loads(line.removeprefix("export TF_CONFIG=").strip("'")) for line in lines[1::2]]
    assert values[0]["cluster"] == {"worker": ["127.0.0.1:5000", "127.0.0.1:5001"]}
    assert [value["task"]["index"] for value in values] == [0, 1]


def test_with_task_only_the_value_is_printed(capsys):
    assert run(["tf-config", "--ps", "1", "--workers", "1", "--task", "ps:0", "--port", "5000"]) == 0
    assert json.loads(capsys.readouterr().out)["task"] == {"type": "ps", "index": 0}


def test_an_unknown_task_and_a_strategy_without_a_cluster_are_refused(capsys):
    assert run(["tf-config", "--workers", "2", "--task", "worker:5"]) == 2
    assert "worker:0, worker:1" in capsys.readouterr().err
    for port in ([], ["--port", "22"]):
        assert run(["tf-config", "--strategy", "mirrored", *port]) == 2
        assert capsys.readouterr().err.endswith(
            "use one of multiworker, parameter-server, between-graph, in-graph, external\n"
        )
