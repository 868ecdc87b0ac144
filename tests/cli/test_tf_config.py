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


def clusters(out):
    return [json.loads(line.removeprefix("export TF_CONFIG=").strip("'")) for line in out.splitlines()[1::2]]


def test_other_hosts_are_not_connected(capsys):
    assert run(["tf-config", "--hosts", "192.0.2.1,192.0.2.2:2", "--port", "5000"]) == 0
    found = clusters(capsys.readouterr().out)
    addresses = ["192.0.2.1:5000", "192.0.2.2:5000", "192.0.2.2:5001"]
    assert [value["cluster"] for value in found] == [{"worker": addresses}] * 3


def test_a_hostfile_gives_roles_addresses_and_ports(tmp_path, capsys):
    (tmp_path / "hosts").write_text("a addr=192.0.2.1 role=ps port=7000\nb addr=192.0.2.2 port=7100\n")
    assert run(["tf-config", "--strategy", "parameter-server", "--hostfile", str(tmp_path / "hosts")]) == 0
    cluster = clusters(capsys.readouterr().out)[0]["cluster"]
    assert cluster["ps"] == ["192.0.2.1:7000"]
    assert {address.rpartition(":")[0] for address in (*cluster["worker"], *cluster["chief"])} == {"192.0.2.2"}


def test_free_ports_of_other_hosts_are_not_known(capsys):
    assert run(["tf-config", "--hosts", "192.0.2.1,192.0.2.2"]) == 2
    assert capsys.readouterr().err == (
        "tfdist: --hosts: the free ports of 192.0.2.1 are not known without connecting it; add --port 12345, or port= in "
        "the hostfile\n"
    )
