import json
import shlex
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdist.launch.redact import REDACTED, redact_arguments, redact_command, redact_text, redact_value, safe_text

SECRETS = [
    "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "WANDB_API_KEY", "DB_PASSWORD", "DB_PASS", "OPENAI_KEY", "github_token",
    "GOOGLE_APPLICATION_CREDENTIALS", "SSH_PRIVATE", "BASIC_AUTH", "APIKEY",
]  # fmt: skip


@pytest.mark.parametrize("name", SECRETS)
def test_values_of_secret_names_are_redacted(name):
    assert redact_value(name, "hunter2") == REDACTED
    for words in ([f"{name}=hunter2"], ["-x", f"{name}=hunter2"], [f"--env={name}=hunter2"], [f"-x{name}=hunter2"]):
        assert "hunter2" not in redact_command(["tfdist", *words])
        assert name in redact_command(words)


@pytest.mark.parametrize("name", ["NCCL_DEBUG", "PATH", "KEYBOARD", "TF_CPP_MIN_LOG_LEVEL", "PWD", "PASSENGERS"])
def test_other_values_are_not_redacted(name):
    assert redact_value(name, "info") == "info"
    assert redact_command(["-x", f"{name}=a b"]) == shlex.join(["-x", f"{name}=a b"])


def test_secret_options_of_the_users_program_are_redacted():
    assert redact_command(["python", "t.py", "--api-key=hunter2", "--lr=0.1"]) == "python t.py '--api-key=***' --lr=0.1"


@pytest.mark.parametrize(
    ("argv", "masked"),
    [
        (["t.py", "--token", "hunter2", "--lr", "0.1"], ["t.py", "--token", "***", "--lr", "0.1"]),
        (["t.py", "--api-key", "-hunter2"], ["t.py", "--api-key", "***"]),
        (["t.py", "--use-auth", "--lr", "0.1"], ["t.py", "--use-auth", "--lr", "0.1"]),
        (["t.py", "--use-auth", "-v"], ["t.py", "--use-auth", "-v"]),
        (["t.py", "--token"], ["t.py", "--token"]),
        (["pip", "install", "-i", "https://me:hunter2@h/x"], ["pip", "install", "-i", "https://me:***@h/x"]),
        (["t.py", "--data=s3://a:hun/t@er2@h:90/p"], ["t.py", "--data=s3://a:***@h:90/p"]),
        (["git", "clone", "https://ghp_0123456789abcdefghij@h/x"], ["git", "clone", "https://***@h/x"]),
        (["curl", "https://h/x?a=1&sig=hunter2&b=2"], ["curl", "https://h/x?a=1&sig=***&b=2"]),
        (["curl", "-H", "Authorization: Bearer hunter2"], ["curl", "-H", "Authorization: ***"]),
        (["curl", "-H", "X-Api-Key: hunter2", "-HCookie:hunter2"], ["curl", "-H", "X-Api-Key: ***", "-HCookie:***"]),
        (["sh", "-c", "A=1 API_TOKEN=hunter2 t.py --token hunter2 x"], ["sh", "-c", "A=1 API_TOKEN=*** t.py --token *** x"]),
        (["t.py", '{"lr": 1, "token": "hun ter2"}'], ["t.py", '{"lr": 1, "token": "***"}']),
        (["t.py", "--set=API_TOKEN=hunter2"], ["t.py", "--set=API_TOKEN=***"]),
        (["t.py", "--author", "me", "ssh://git@h/x", "http://h:80/p", "a:b"], ["t.py", "--author", "me", "ssh://git@h/x", "http://h:80/p", "a:b"]),
    ],
)  # fmt: skip
def test_secrets_in_a_command_are_masked_and_nothing_else(argv, masked):
    assert redact_arguments(argv) == masked
    assert redact_command(argv) == shlex.join(masked)


@pytest.mark.parametrize(
    "text",
    [
        "h1: login denied for me (me@h1: Permission denied (publickey,password)); run 'ssh-copy-id h1'",
        "could not open authorized_keys: Permission denied",
        "--timeout 0: must be positive; omit it for no limit",
        '{"cluster": {"worker": ["token-host:1234", "b:1"]}, "task": {"type": "worker", "index": 0}}',
    ],
)
def test_messages_and_clusters_are_unchanged(text):
    assert redact_text(text) == text


def test_a_password_in_the_value_of_any_variable_is_masked():
    assert redact_value("DATABASE_URL", "postgres://me:hunter2@h/db") == "postgres://me:***@h/db"


SECRET = st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="\"'"), min_size=6).map(
    lambda text: f"S3{text}"
)
NAMES = st.sampled_from(["token", "api-key", "my_password", "DB_PASS", "client-secret", "auth"])
PLAIN = st.sampled_from(["t.py", "--lr", "0.1", "-v", "A=1", "x y", "--", "https://h/x", "", "=", "--a=b"])


@st.composite
def secret_words(draw, secret):
    """Arguments with the secret, in one of the forms that are masked."""
    name, url = draw(NAMES), f"{draw(st.sampled_from(['https', 's3', 'a+b']))}://"
    return draw(
        st.sampled_from(
            [
                [f"--{name}", secret],
                [f"--{name}={secret}"],
                [f"{name}={secret}"],
                ["-x", f"{name}={secret}"],
                [f"--env={name}={secret}"],
                [f"{url}me:{secret}@host/path"],
                [f"--url={url}:{secret}@host"],
                [f"DATABASE={url}me:{secret}@host:5432/db"],
                ["-H", f"Authorization: Bearer {secret}"],
                [f"--header=authorization:Basic {secret}"],
                ["sh", "-c", f"echo a; python t.py --{name} {secret} b"],
                ["sh", "-c", f"{name}={secret} python t.py"],
                [json.dumps({"lr": 1, name: secret})],
            ]
        )
    )


@given(st.data(), SECRET, st.lists(PLAIN, max_size=3), st.lists(PLAIN, max_size=3))
def test_a_secret_is_never_in_the_redacted_command(data, secret, before, after):
    words = data.draw(secret_words(secret))
    argv = [*before, *words, *after]
    assert secret not in redact_command(argv)
    assert secret not in " ".join(redact_arguments(argv))
    assert secret not in redact_text(" ".join(argv))


@given(st.lists(st.text(), max_size=5))
def test_any_command_keeps_its_number_of_arguments(argv):
    assert len(redact_arguments(argv)) == len(argv)


@pytest.mark.parametrize("text", ["a=", "?a=b&", "://u:", "x-", "x-key", "--a ", "'a':", 'token="'])
def test_a_long_text_is_masked_in_little_time(text):
    started = time.monotonic()
    masked = redact_text(text * (20_000 // len(text)) + " --token hunter2")
    assert "hunter2" not in masked
    assert time.monotonic() - started < 5


def test_the_password_of_sshpass_is_masked():
    assert redact_text("shell:sshpass -p hunter2 ssh {host}") == "shell:sshpass -p *** ssh {host}"
    assert redact_text("sshpass -p 'hunter 2' ssh") == "sshpass -p *** ssh"


def test_bytes_that_are_not_utf8_become_replacement_characters():
    text = b"caf\xe9: no such file".decode("utf-8", "surrogateescape")
    assert safe_text(text) == "caf\ufffd: no such file"
    assert safe_text("café") == "café"
