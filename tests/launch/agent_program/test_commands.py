from tfdist.launch.agent_program import commands


def test_a_command_that_times_out_has_no_output(monkeypatch):
    monkeypatch.setattr(commands, "COMMAND_TIMEOUT_S", 0.1)
    assert commands.output_of(["sleep", "60"]) == ""
    assert commands.output_of(["echo", "x"]) == "x\n"


def test_a_command_that_cannot_be_run_has_no_output():
    assert commands.output_of(["no-such-program"]) == ""
