"""What is masked in an archive for a bug report: secrets as they are in logs and configurations, and hosts."""

import json
import socket

import pytest

from tests.launch.test_redact import REPEATED, is_linear
from tfdist.launch.runs.bundle_masks import HostNames, Redactor, host_names, hosts_of

X = "hunter2-Tr0ub4dor"
HEX = "0123456789abcdef0123456789abcdef01234567"
B64 = "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWY="
LINE = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj"

SECRETS = [
    # lines of configurations: a name, a sign, a value
    f"password: {X}",
    f"api_key: {X}",
    f"DB_PASS: {X}",
    f'password = "{X}"',
    f"aws_secret_access_key = {X}",
    f"AWS_SECRET_ACCESS_KEY={X}",
    f"    token: {X}",
    f"    client-key-data: {B64}",
    f'  "key": "{X}",',
    f"key: {X}",
    f"secretKey: {X}",
    f"client_secret => '{X}'",
    f"secret_key := {X}",
    f"export WANDB_API_KEY='{X}'",
    f'{{"name": "API_TOKEN", "value": "{X}"}}',
    f'{{"value": "{X}", "name": "API_TOKEN"}}',
    f"- name: DB_PASSWORD\n  value: {X}",
    f'["train.py", "--api-key", "{X}"]',
    f"['train.py', '--token', '{X}', '--lr', '0.1']",
    f'"--api-key",\n  "{X}",',
    f"args:\n- --api-key\n- {X}",
    f"password: correct horse {X}",
    f'password: "correct horse {X}" # of the database',
    f"DB_PASSWORD=correct horse {X}",
    f"password: |\n  correct horse\n  {X}\nnext: 1",
    f"spring.datasource.password={X}",
    f"//registry.npmjs.org/:_authToken={X}",
    f"private-key: '{X} it''s {X}'",
    f"PASSWORD='it'\"'\"'s {X}'",
    f"Server=db;Database=d;User Id=u;Password={X};Encrypt=true",
    f"storage connection_string: DefaultEndpointsProtocol=https;AccountKey={B64}",
    f"session_id={X}",
    # in logs, and in texts inside texts
    f"2026-11-24 10:28:31,123 INFO auth: password={X}",
    f"[worker-0] API key: {X}",
    f"your password is {X}",
    f"the token was: {X}",
    f"Authorization: Bearer {X}",
    f"curl -H 'X-Api-Key: {X}' https://example.com",
    f'INFO {{"event": "login", "password": "{X}", "user": "me"}}',
    f'"log": "{{\\"password\\": \\"{X}\\", \\"a\\": 1}}"',
    f"{{'token': '{X}'}}",
    f"Namespace(lr=0.1, api_key='{X}', steps=3)",
    f"connecting to postgres://me:{X}@db/data",
    f"rsync me:{X}@db:/data .",
    f"GET /data?sig={X}&expires=1",
    f"Set-Cookie: id={X}; HttpOnly",
    f"\x1b[32mpassword\x1b[0m: {X}",
    f"step 1\rpassword: {X}",
    # files of their own form
    f"machine db.example.com login me password {X}",
    f"machine db.example.com\n  login me\n  password {X}",
    f"db.example.com:5432:data:me:{X}",
    f"-----BEGIN RSA PRIVATE KEY-----\n{LINE}\n{LINE}\nQUJD{X[:0]}\n-----END RSA PRIVATE KEY-----",
    f"[worker-0] -----BEGIN OPENSSH PRIVATE KEY-----\n[worker-0] {LINE}\n[worker-0] {LINE[:20]}\n[worker-0] -----END OPENSSH "
    "PRIVATE KEY-----",
    f'{{"private_key_id": "1", "pem": "-----BEGIN PRIVATE KEY-----\\n{LINE}\\n{LINE[:20]}\\n-----END PRIVATE KEY-----\\n"}}',
    f"{LINE}\n{LINE[:20]}==\n-----END PRIVATE KEY-----",
    f"-----BEGIN PRIVATE KEY-----\n{LINE}\n{LINE}",
    # commands
    f"wandb login {HEX}",
    f"wandb login --relogin {HEX}",
    f"mysql -u me -p{X} data",
    f"redis-cli -h db -a {X} ping",
    f"docker login -u me -p {X} registry.example.com",
    f"sshpass -p {X} ssh h1",
    f"train.py --db-password {X}",
    f"huggingface-cli login --token {X}",
    f"token {X}",
]  # fmt: skip


def masked(text, name="stdout.log"):
    return Redactor([], {}).file(name, text)


@pytest.mark.parametrize("text", SECRETS)
def test_a_realistic_secret_is_masked(text):
    """Also where it is one line of a log, a string of JSON, and one string per line in a list."""
    for kept in (masked(text), masked(f"step 1\n{text}\nstep 2 loss 0.5\n"), masked(json.dumps([text, {"a": text}]), "a.json"),
                 masked(json.dumps({"log": ["a", *text.split("\n"), "z"]}), "a.json"), masked(json.dumps({"x": text}) + "\n{", "a.jsonl")):  # fmt: skip
        for secret in ("Tr0ub", HEX, B64, LINE, LINE[:20]):
            assert secret not in kept
    before, *_, after = masked(f"step 1\n{text}\nstep 2 loss 0.5").split("\n")
    assert before == "step 1" or text.startswith(LINE)
    assert after == "step 2 loss 0.5" or text.endswith(LINE)


INNOCENT = [
    "2026-11-24 10:28:31.123456: I tensorflow/core/platform/cpu_feature_guard.cc:210] This TensorFlow binary is optimized",
    "E0000 00:00:1732443511.123456   12345 cuda_dnn.cc:8310] Unable to register cuDNN factory: Attempting to register factory",
    "Created device /job:localhost/replica:0/task:0/device:GPU:0 with 78000 MB memory:  -> device: 0, name: NVIDIA H100",
    "Epoch 1/5 - 12s 45ms/step - loss: 0.6931 - accuracy: 0.5120 - val_loss: 0.6 - lr: 1e-3",
    "step 100 loss 2.345 tokens/s 12345.6 tokens: 4096 num_tokens=1234 max_tokens: 512 tokens_per_second=123.4",
    "tokenizer: bert-base-uncased, vocab_size: 30522, pad_token_id: 0",
    '{"step": 5, "tokens": 4096, "loss": 0.5, "name": "accuracy", "value": 0.5}',
    '  File "/home/me/train.py", line 12, in main',
    "    model.fit(dataset, epochs=args.epochs, callbacks=[checkpoint])",
    "KeyError: 'conv2d/kernel'",
    "tensorflow.python.framework.errors_impl.UnauthenticatedError: Request had invalid credentials",
    "Key conv2d/kernel not found in checkpoint",
    "OMP_NUM_THREADS=4 PATH=/usr/bin:/bin LD_LIBRARY_PATH=/usr/local/cuda/lib64 PWD=/home/me python train.py --lr 0.1",
    "nvidia-cudnn-cu12==9.3.0.75, nvidia-cublas-cu12     12.5.3.2, libcudnn.so.9.1.0.70, cuDNN version 8.9.7.29",
    "driver 550.54.15, NCCL version 2.21.5+cuda12.5, tensorflow 2.21.0",
    "worker-0: exited with code 1; worker-1 lost: no heartbeat for 10 s",
    "could not open authorized_keys: Permission denied (publickey,password)",
    "Unexpected token } in JSON at position 3; the token is not valid, a password is required",
    "tensorflow::PrivateThreadPool::Start() in std::secret at a::b, 12:30:45, aa:bb:cc:dd:ee:ff",
    "bash: /run/secrets/token: No such file or directory; secrets.py:33: DeprecationWarning: use X",
    "listening on 127.0.0.1:2222, [::1]:2222 and 0.0.0.0:80",
]  # fmt: skip


@pytest.mark.parametrize("text", INNOCENT)
def test_lines_of_a_training_are_readable(text):
    assert masked(text) == text
    assert masked(json.dumps([text]), "a.json") == json.dumps([text])


def test_values_under_the_name_of_a_secret_are_masked_in_json():
    value = {
        "key": X,
        "auth": {"user": "me", "number": 12},
        "tokens": [X, 7],
        "password": 1234,
        "token_count": 3,
        "pass": True,
    }
    assert json.loads(masked(json.dumps(value), "a.json")) == {
        "key": "***", "auth": {"user": "***", "number": "***"}, "tokens": ["***", 7], "password": "***", "token_count": 3,
        "pass": True,
    }  # fmt: skip
    assert json.loads(masked(json.dumps({"key": "API_TOKEN", "value": X}), "a.json")) == {
        "key": "API_TOKEN",
        "value": "***",
    }


@pytest.fixture
def hosts(monkeypatch):
    """Masks the hosts of a job: this machine, and two more."""
    monkeypatch.setattr(socket, "gethostname", lambda: "desk-7")
    bridge = {"docker0": ["172.17.0.1"]}
    hellos = {
        "localhost": {"host": "desk-7", "interfaces": {"lo": ["127.0.0.1"], "eth0": ["10.0.0.1"], **bridge}},
        "n1": {"host": "node17.cluster.example", "interfaces": {"eth0": ["10.0.0.2", "fd00::2"], **bridge}},
        "gpu": {"host": "gpu", "interfaces": {"eth0": ["10.0.0.3"]}},
        "bad": 3,
    }
    plan = {"cluster": {"worker": ["gpu.internal:22"]}, "tasks": [{"task": "worker-0", "host": "gpu"}]}
    return Redactor([*hosts_of("hosts.json", hellos), *hosts_of("cluster.json", plan)], {})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("desk-7 10.0.0.1:2222 and ipv4:10.0.0.1:2222", "HOST-1 HOST-1:2222 and ipv4:HOST-1:2222"),
        ("n1:22, node17.cluster.example NODE17 10.0.0.2", "HOST-2:22, HOST-2 HOST-2 HOST-2"),
        ("[fd00::2]:22 fd00:0:0::2 ipv6:%5Bfd00::2%5D:22", "[HOST-2]:22 HOST-2 ipv6:%5BHOST-2%5D:22"),
        ("node17.other.example.org node17.log", "HOST-2 HOST-2.log"),
        ("a gpu, me@gpu gpu:2222 GPU:0 gpu.internal", "a gpu, me@HOST-3 HOST-3:2222 GPU:0 HOST-3"),
        ("10.9.9.9 172.17.0.1 10.9.9.9/24 fe80::9:1%eth0", "HOST-5 HOST-6 HOST-5/24 HOST-7%eth0"),
        ("ip-10-0-0-2.ec2.internal ip-10-9-9-9", "HOST-2 HOST-5"),
        ("10.0.0.1-10.0.0.3 10.0.0.1\\n10.0.0.2 '10.0.0.1'", "HOST-1-HOST-3 HOST-1\\nHOST-2 'HOST-1'"),
        ("worker-0 localhost n10 10.0.0.256", "worker-0 localhost n10 10.0.0.256"),
    ],
)
def test_names_and_addresses_of_a_host_have_one_number(text, expected, hosts):
    hosts.text("10.9.9.9 172.17.0.1")
    assert hosts.text(text) == expected


def test_short_names_of_hosts_are_masked_where_a_host_must_be(hosts):
    text = json.dumps({"host": "gpu", "hosts": {"gpu": {"kind": "gpu"}}})
    assert json.loads(hosts.file("a.json", text)) == {"host": "HOST-3", "hosts": {"HOST-3": {"kind": "gpu"}}}
    assert json.loads(hosts.file("a/hosts.json", '{"gpu": 1}')) == {"HOST-3": 1}


@pytest.mark.parametrize("value", [3, None, [], {}, [3], {"hosts": 3}, {"host": []}, {"hosts": {"a": {"interfaces": [1]}}},
                                   {"hosts": {"a": {"host": 3, "interfaces": {"b": 3, "c": [4]}}}}, {"tasks": [{"host": 3}, 3]},
                                   {"tasks": 3}, {"hosts": [None]}, {"tasks": [{"host": 3, "task": "worker-9"}], "cluster": {"worker": [1]}},
                                   {"tasks": [{"task": "worker-x"}], "cluster": 3}])  # fmt: skip
@pytest.mark.parametrize("member", ["hosts.json", "cluster.json", "outcome.json"])
def test_odd_descriptions_of_hosts_are_no_error(member, value):
    assert Redactor(hosts_of(member, value), {}).text("step 1") == "step 1"


def test_hosts_that_doctor_examined_are_masked_by_name_and_address():
    redact = Redactor(
        [HostNames(frozenset({"n1"})), host_names("node18", None, "10.1.1.1"), host_names("x", {"host": "n1"})], {}
    )
    assert redact.text("node18 10.1.1.1 n1") == "HOST-3 HOST-3 HOST-2"


LONG = [*REPEATED, "name: a value: ", 'value=\\"', 'value="\\', '"--a",', "- --a\n", "key: |\n ", "1:", "1.", "a.", "a:b@", "password ",
        "password is ", 'password="', "password=''", "-----BEGIN A-----\n", "-----END A-----\n", "h:1:a:b:", "10.0.0.1 ", "ip-1",
        *"ax- =/:'\"\\.[\n\r\t"]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("fragment", LONG)
def test_a_long_text_of_one_fragment_takes_linear_time(fragment):
    redact = Redactor([HostNames(frozenset({"node17"}))], {"API_KEY": "hunter22"})
    assert is_linear(redact.text, fragment)
