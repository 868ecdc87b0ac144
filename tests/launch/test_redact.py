import json
import re
import shlex
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfdist.launch.redact import (
    REDACTED,
    TOKENS,
    redact_arguments,
    redact_command,
    redact_text,
    redact_value,
    safe_text,
)
from tfdist.launch.text import visible

SECRETS = [
    "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "WANDB_API_KEY", "DB_PASSWORD", "DB_PASS", "OPENAI_KEY", "github_token",
    "GOOGLE_APPLICATION_CREDENTIALS", "SSH_PRIVATE", "BASIC_AUTH", "APIKEY",
    "GH_PAT", "PAT", "github-pat", "PAT_GITHUB", "MY_PAT_2", "PAT2", "JWT", "MY_JWT", "jwt-dev", "AccountKey", "ACCOUNT_KEY",
    "PASS", "db-pass", "PASS2", "SSHPASS",
]  # fmt: skip


@pytest.mark.parametrize("name", SECRETS)
def test_values_of_secret_names_are_redacted(name):
    assert redact_value(name, "hunter2") == REDACTED
    for words in ([f"{name}=hunter2"], ["-x", f"{name}=hunter2"], [f"--env={name}=hunter2"], [f"-x{name}=hunter2"]):
        assert "hunter2" not in redact_command(["tfdist", *words])
        assert name in redact_command(words)


@pytest.mark.parametrize(
    "name",
    [
        "NCCL_DEBUG", "PATH", "KEYBOARD", "TF_CPP_MIN_LOG_LEVEL", "PWD", "PASSENGERS", "PATTERN", "PATCH", "COMPAT", "PASSES",
        "DISPATCH", "PYTHONPATH", "LD_LIBRARY_PATH", "COMPASS", "TF_XLA_FLAGS", "path", "SPATIAL", "BYPASS", "PATIENCE",
        "MAX_PASSES", "AccountName", "xla_dump_hlo_pass_re", "CURL_CA_BUNDLE", "TOKENIZERS_PARALLELISM",
        "TOKENIZER", "MAX_TOKENS", "max-new-tokens", "TOKENIZE",
    ],
)  # fmt: skip
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


REPEATED = ["a=", "?a=b&", "://u:", "x-", "x-key", "--a ", "'a':", 'token="', "curl -u a", " -u", "eyJ.", "sk-", "mysql ", "mysql -p", "wandb login ", "1//0", "bot1", "12345678:", "-----BEGIN A-----", "-----END A-----\n", "hooks.slack.com/services/", "\x1b[", "\x1b]", "\x1b "]  # fmt: skip


@pytest.mark.parametrize("text", REPEATED)
def test_a_secret_after_a_long_text_is_masked(text):
    assert "hunter2" not in redact_text(text * (20_000 // len(text)) + " --token hunter2")


def cpu_s(act, text):
    started = time.process_time()
    act(text)
    return time.process_time() - started


def is_linear(act, fragment):
    """Whether an act takes linear time in one of three tries.

    If it takes quadratic time, it takes 256 times as long for a text that is 16 times as long.
    """
    short, long = fragment * (1024 // len(fragment)), fragment * (16 * 1024 // len(fragment))
    return any(cpu_s(act, long) < 80 * cpu_s(act, short) + 0.05 for _ in range(3))


ACTS = [safe_text, lambda text: redact_arguments([text, text]), lambda text: visible(text, colors=True)]


def check_linear(fragment):
    for act in ACTS:
        assert is_linear(act, fragment), act


@pytest.mark.slow
@pytest.mark.parametrize("fragment", [*REPEATED, *"a-_9 \n\\\"'"])
def test_a_long_text_of_one_fragment_takes_linear_time(fragment):
    check_linear(fragment)


FRAGMENTS = st.lists(
    st.sampled_from(
        [*"aA0 =:/@?&'\"-_.\\\n\t;x", "--", "://", "token", "key", "x-", "curl", "-u", "\x1b[", "\x1b]", "eyJ", "sk-"]
    ),
    min_size=1,
    max_size=5,
).map("".join)


@pytest.mark.slow
@settings(deadline=None, max_examples=30)
@given(FRAGMENTS)
def test_a_long_text_of_any_fragment_takes_linear_time(fragment):
    check_linear(fragment)


def test_the_password_of_sshpass_is_masked():
    assert redact_text("shell:sshpass -p hunter2 ssh {host}") == "shell:sshpass -p *** ssh {host}"
    assert redact_text("sshpass -p 'hunter 2' ssh") == "sshpass -p *** ssh"


def test_bytes_that_are_not_utf8_become_replacement_characters():
    text = b"caf\xe9: no such file".decode("utf-8", "surrogateescape")
    assert safe_text(text) == "caf\ufffd: no such file"
    assert safe_text("café") == "café"


ABC = "0123456789abcdefghijABCDEFGHIJ0123456789"
HEX = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
EXAMPLES = {  # in two parts: scanners of repositories take them for real ones
    "age": ["AGE-SECRET-KEY-1" + ABC.upper()[:40]],
    "Atlassian": ["ATATT3" + ABC],
    "AWS": ["AKIAIOSFODNN7" + "EXAMPLE", "ASIAIOSFODNN7" + "EXAMPLE"],
    "Azure": ["abc8Q~" + ABC[:34]],
    "Databricks": ["dapi" + HEX[:32], "dapi" + HEX[:32] + "-2"],
    "DigitalOcean": ["dop_v1_" + HEX, "doo_v1_" + HEX],
    "Discord": ["MT" + ABC[:22] + ".GabcDE." + ABC[:38]],
    "Docker": ["dckr_pat_" + ABC[:27]],
    "GitHub": ["ghp_" + ABC, "gho_" + ABC[:16], "ghs_" + ABC[:16], "ghu_" + ABC[:16], "github_pat_" + "11ABCDEFG0abcdefghijkl_mnopqrs"],
    "GitLab": ["glpat-" + ABC[:20], "glrt-" + ABC[:20], "gldt-" + ABC[:20], "glrt-" + ABC[:20] + ".01.0a1b2c3d4"],
    "Google": ["AIza" + "SyA" + ABC[:32], "ya29." + "a0AfH6SM_" + ABC, "GOCSPX-" + ABC[:28], "1//0" + ABC],
    "Grafana": ["glsa_" + ABC[:32] + "_12345678"],
    "Groq": ["gsk_" + ABC],
    "Hugging Face": ["hf_" + "abcdefghijABCDEFGHIJabcdefghijABCD"],
    "JSON web token": ["eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiIxIn0.abc-DEF_123"],
    "npm": ["npm_" + ABC[:36]],
    "NVIDIA": ["nvapi-" + ABC],
    "OpenAI, Anthropic": ["sk-" + "proj-abcdefghijklmnop123456", "sk-" + "ant-api03-abcdefghijklmnop"],
    "PyPI": ["pypi-" + "AgEIcHlwaS5vcmcC" + ABC],
    "Replicate": ["r8_" + ABC[:37]],
    "SendGrid": ["SG." + ABC[:22] + "." + ABC],
    "Shopify": ["shpat_" + HEX[:32]],
    "Slack": ["xoxb-" + "123456789012-abcdefghijkl", "xoxp-" + "123456789012-abcdef", "xapp-" + "1-A123-456-abcdef"],
    "Stripe": ["sk_live_" + ABC[:24], "rk_test_" + ABC[:24], "whsec_" + ABC[:32]],
    "Tailscale": ["tskey-" + "auth-kAbCdEfGh-" + ABC[:20]],
    "Telegram": ["123456789:AA" + ABC[:33], "bot1234567890:AA" + ABC[:33]],
    "Terraform": [ABC[:14] + ".atlasv1." + ABC],
    "Twilio": ["SK" + HEX[:32]],
    "Vault": ["hvs." + ABC, "hvb." + ABC],
}  # fmt: skip


def test_each_form_of_token_has_an_example():
    assert set(EXAMPLES) == set(TOKENS)


@pytest.mark.parametrize(("issuer", "token"), [(issuer, token) for issuer in EXAMPLES for token in EXAMPLES[issuer]])
def test_a_token_is_recognized_by_the_form_of_its_issuer(issuer, token):
    assert re.fullmatch(TOKENS[issuer], token)


@pytest.mark.parametrize("token", [token for tokens in EXAMPLES.values() for token in tokens])
def test_known_tokens_are_masked_without_a_name(token):
    for text in (
        token,
        f"a\\n{token}\\n",
        f"login with {token}, please",
        f"--key1={token}",
        f"'{token}'",
        f"https://h/{token}?x",
    ):
        assert token not in redact_text(text)
        assert redact_text(text) == text.replace(token, REDACTED)
    assert redact_arguments(["t.py", token, f"X={token}"]) == ["t.py", REDACTED, f"X={REDACTED}"]
    assert redact_value("X", token) == REDACTED


@pytest.mark.parametrize(
    "text",
    [
        "hf_hub_download", "hf_datasets/imagenet", "ghp_short", "task-0123456789abcdef01", "disk-0123456789abcdef01",
        "sk-learn-examples-of-trees", "AKIAB", "ASIAPACIFICREGION", "eyJson", "AIza", "xoxb", "https://slack.com/services/x",
        "docker run -u 1000:1000 -u node:node image", "XLA_FLAGS=--xla_dump_hlo_pass_re=.* --xla_dump_to=/x", "path=/a:/b",
        "--pattern 'x y' --path /a --compat 1", "PATH=/usr/bin PYTHONPATH=/x python t.py", "curl -o out -u me https://h:80/x",
    ],
)  # fmt: skip
def test_texts_that_only_resemble_secrets_are_unchanged(text):
    assert redact_text(text) == text
    assert redact_arguments(text.split()) == text.split()


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("https://hooks.slack.com/services/T0/B0/hunter2", "https://hooks.slack.com/services/***"),
        ("see https://discord.com/api/webhooks/1/hunter2 now", "see https://discord.com/api/webhooks/*** now"),
        ("https://discordapp.com/api/v10/webhooks/1/hunter2", "https://discordapp.com/api/v10/webhooks/***"),
        ("curl -u me:hunter2 https://h/x", "curl -u me:*** https://h/x"),
        ("curl -sSu 'me:hun ter2' https://h/x", "curl -sSu 'me:***' https://h/x"),
        ("/usr/bin/curl --user=me:hunter2 -U p:hunter2 x", "/usr/bin/curl --user=me:*** -U p:*** x"),
        ("curl -ume:hunter2 x", "curl -ume:*** x"),
        ("AccountName=a;AccountKey=hunter2==;EndpointSuffix=x", "AccountName=a;AccountKey=***"),
    ],
)  # fmt: skip
def test_passwords_of_webhooks_and_curl_are_masked(text, masked):
    assert redact_text(text) == masked
    assert "hunter2" not in redact_command(text.split(" "))


def test_the_password_of_curl_is_masked_in_an_argument_of_its_own():
    assert redact_arguments(["curl", "-u", "me:hun ter2", "x"]) == ["curl", "-u", "me:***", "x"]
    assert redact_arguments(["/usr/bin/curl", "--proxy-user", "me:hunter2"])[2] == "me:***"


LINE = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj"
BEGIN, END = "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        (f"a\n{BEGIN}\n{LINE}\nab==\n{END}\nb", f"a\n{BEGIN}\n***\n***\n{END}\nb"),
        (f"[w] {BEGIN}\n[w] {LINE}\n[w] ab==\n[w] {END}\n[w] b", f"[w] {BEGIN}\n***\n***\n***{END}\n[w] b"),
        (f'{{"a": "{BEGIN}\\n{LINE}\\n{END}\\n", "b": 1}}', f'{{"a": "{BEGIN}***{END}\\n", "b": 1}}'),
        (f"{BEGIN}\nProc-Type: 4,ENCRYPTED\n\n{LINE}\n{END}", f"{BEGIN}\n***\n\n***\n{END}"),
        (f"{BEGIN}\n{LINE}\n{LINE}\nab==\nstep 1 loss", f"{BEGIN}\n***\n***\n***\nstep 1 loss"),
        (f"step 1 loss\n{LINE}\n{LINE}\nab==\n{END}", f"step 1 loss\n***\n***\n***\n{END}"),
        (f"step 1\n{END}\nstep 2\n{BEGIN}\nstep 3", f"step 1\n{END}\nstep 2\n{BEGIN}\nstep 3"),
    ],
)
def test_keys_are_masked_as_a_block_and_lines_stay(text, masked):
    assert redact_text(text) == masked


COMMANDS = [
    "mysql -u me -phunter2 data", "mysqldump --host h -p'hunter2' data", "redis-cli -h h -a hunter2 ping",
    "mongosh -u me -p hunter2 h", "docker login -u me -p hunter2 h", "ldapsearch -x -D me -w hunter2", "sqlcmd -S h -P hunter2",
    "wandb login 0123456789hunter20123456789hunter2", "wandb login --relogin 0123456789hunter20123456789hunter2",
]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_passwords_of_programs_are_masked(command):
    assert "hunter2" not in redact_text(f"run '{command}' first")
    assert "hunter2" not in redact_command(shlex.split(command))
    assert "hunter2" not in redact_command(["sh", "-c", command])
    assert len(redact_arguments(shlex.split(command))) == len(shlex.split(command))


@pytest.mark.parametrize(
    "text",
    [
        "token: expected ',' at line 3", "password: ", "step key: value", "key: loss", "no secret: give one",
        "Request had invalid credentials: token expired", "ssh -p 2222 mysql.example.com", "docker run -p 8080:80 image",
        "run wandb login to log in", "mkdir -p /data/mysql", "num_tokens=1234 tokens_per_s=12.5 max_token_id=5 lr=0.1",
        "10.0.0.5:2222 refused the connection", "step 12: loss 0.5, 123456789: 1234",
    ],
)  # fmt: skip
def test_messages_keep_the_words_that_say_what_went_wrong(text):
    assert safe_text(text) == text
    assert redact_command(text.split()) == shlex.join(text.split())


def test_an_escape_hides_no_secret():
    assert "hunter2" not in safe_text("--to\x1b[0mken=hunter2 \x1b[32mpassword=hunter2")
    assert EXAMPLES["npm"][0] not in safe_text(f"\x1b[32m{EXAMPLES['npm'][0]}\x1b[0m")
