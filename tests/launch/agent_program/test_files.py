from tfdist.launch.agent_program.files import temporary_root


def test_tmpdir_is_used_if_it_is_a_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert temporary_root() == str(tmp_path)
    for wrong in ("", "/no/such/folder"):
        monkeypatch.setenv("TMPDIR", wrong)
        assert temporary_root() == "/tmp"
