"""Masks secrets in what is printed or saved: values of secret names, passwords in URLs, HTTP headers, known tokens.

A password without a name, as an argument by itself, cannot be recognized. In a sentence, a word after `password` or
`token:` stays: it mostly says what went wrong. `runs/bundle_masks.py` masks that, too.
"""

import re
import shlex
from collections.abc import Iterator, Sequence

from tfdist.launch.text import plain, replace_surrogates

REDACTED = "***"
_SECRET = re.compile(
    r"SECRET|(?<!MAX[_-])(?<!NEW[_-])TOKEN(?!I[SZ])|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|PRIVATE|COOKIE|(API|ACCESS|ACCOUNT)[_-]?KEY"
    r"|AUTH(?!OR(?!IZATION))|[_-](KEY|PWD)$|(?<![^_-])((SSH)?PASS\d*$|(PAT|JWT)\d*(?![^_-]))",
    re.IGNORECASE,
)
_FLAG = re.compile(r"--?[A-Za-z][\w-]*")
_ASSIGNMENT = re.compile(r"((?:--env=)?[\w-]+)=", re.DOTALL)
_MASKED = (
    (
        r"((?:proxy-)?authorization|(?:set-)?cookie|x-[\w-]{0,50}(?:token|key|auth|secret)[\w-]{0,50})"
        r"(['\"]?\s*:\s*)[^\n]+",
        rf"\1\2{REDACTED}",
    ),
    (r"\b(bearer)\s+\S+", rf"\1 {REDACTED}"),
    (r"\b((?-i:sshpass\s+-p\s*))(?:\"[^\"]*\"|'[^']*'|\S+)", rf"\1{REDACTED}"),
    (r"(://[^\s:/@\"]{0,1000}):[^\s\"]{0,1000}@", rf"\1:{REDACTED}@"),
    (r"(://)[^\s:/@\"]{20,}@", rf"\1{REDACTED}@"),  # a token in place of a user: https://ghp_...@github.com
    (
        r"(hooks\.slack\.com/(?:services|workflows|triggers)/|discord(?:app)?\.com/api/(?:v\d+/)?webhooks/)[^\s\"'<>]+",
        rf"\1{REDACTED}",
    ),
)
TOKENS = {
    "age": r"AGE-SECRET-KEY-(?:PQ-)?1[A-Z0-9]{20,}",
    "Atlassian": r"ATATT3[\w=-]{20,}",
    "AWS": r"(?:AKIA|ASIA)[A-Z0-9]{16}(?![\w-])",
    "Azure": r"[\w~.-]{3}\dQ~[\w~.-]{31,}",
    "Databricks": r"dapi[0-9a-f]{20,}(?:-\d+)?",
    "DigitalOcean": r"do[opr]_v1_[0-9a-f]{20,}",
    "Discord": r"[MNO][\w-]{23,28}\.[\w-]{6}\.[\w-]{27,}",
    "Docker": r"dckr_[op]at_[\w-]{10,}",
    "GitHub": r"gh[oprsu]_\w{10,}|github_pat_\w{10,}",
    "GitLab": r"gl(?:agent|cbt|dt|ffct|ft|imt|oas|pat|ptt|rt|soat)-[\w-]{10,}(?:\.[\w-]+)*",
    "Google": r"AIza[\w-]{30,}|ya29\.[\w.-]{10,}|GOCSPX-[\w-]{16,}|1//0[\w-]{20,}",
    "Grafana": r"glsa_\w{20,}|glc_[\w+/=]{20,}",
    "Groq": r"gsk_[A-Za-z0-9]{20,}",
    "Hugging Face": r"hf_[A-Za-z0-9]{16,}",
    "JSON web token": r"eyJ[\w-]{16,}(?:\.[\w-]*)*",
    "npm": r"npm_[A-Za-z0-9]{20,}",
    "NVIDIA": r"nvapi-[\w-]{20,}",
    "OpenAI, Anthropic": r"sk-(?=[A-Za-z_-]{0,40}\d)[\w-]{16,}",
    "PyPI": r"pypi-Ag[\w-]{16,}",
    "Replicate": r"r8_[A-Za-z0-9]{20,}",
    "SendGrid": r"SG\.[\w-]{10,}\.[\w-]{10,}",
    "Shopify": r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{20,}",
    "Slack": r"xox[abeprs]-[\w-]{10,}|xapp-\d-[\w-]{10,}",
    "Stripe": r"[rs]k_(?:live|test)_\w{10,}|whsec_[\w+/=]{16,}",
    "Tailscale": r"tskey-[\w-]{16,}",
    "Telegram": r"(?:bot)?\d{6,12}:(?=\d{0,34}[A-Za-z])[\w-]{35}(?![\w-])",
    "Terraform": r"[A-Za-z0-9]{14}\.atlasv1\.[\w-]{20,}",
    "Twilio": r"SK[0-9a-f]{32}(?!\w)",
    "Vault": r"hv[bsr]\.[\w-]{16,}",
}
"""Form of each kind of token that can be recognized without a name, by who issues it."""
START = r"(?:(?<![\w-])|(?<=\\[nrt]))"
"""Regular expression: where a word starts, also after an escaped line break."""
_MASKS = [(re.compile(pattern, re.IGNORECASE), replacement) for pattern, replacement in _MASKED]
_MASKS.append((re.compile(f"{START}(?:{'|'.join(TOKENS.values())})"), REDACTED))
"""What is masked wherever it is, and the text in its place, in the order in which they are applied."""
_PEM = re.compile(r"-{4,5} ?(BEGIN|END) [A-Z0-9 ]{1,60}-{4,5}")
_LARGEST_KEY = 1 << 16
"""Characters between the lines BEGIN and END, with what a log puts before each line."""
_KEY_LINE = re.compile(r"[A-Za-z0-9+/=]{40}|Proc-Type: |DEK-Info: ")
_LAST_KEY_LINE = re.compile(r"(?:.*[^\w+/=])?[A-Za-z0-9+/=]{1,76}")
_VALUE = r"""("[^"]*"|'[^']*'|\S+)"""
_PROGRAMS = [  # name, option before the password, and the password
    (re.compile(rf"(?<![\w.-])({program})(?![\w.-])([^\n|;&]{{0,200}}?\s{option}){value}"), re.compile(program))
    for program, option, value in (
        (r"(?:mysql|mariadb)[\w-]{0,20}", "-p", _VALUE),
        (r"redis-cli", r"-a\s+", _VALUE),
        (r"mongo[a-z]{0,10}", r"-p\s+", _VALUE),
        (r"(?:docker|podman)\s+login", r"-p\s+", _VALUE),
        (r"ldap[a-z]{1,10}", r"-w\s+", _VALUE),
        (r"sqlcmd", r"-P\s+", _VALUE),
        (r"wandb\s+login", "", r"([\w-]{30,})"),
    )
]
"""Programs that take a password without a secret name on the command line."""
_CURL = re.compile(r"\bcurl\b")
_CURL_USER = re.compile(r"-\w{0,9}[uU]|--(?:proxy-)?user")
_CURL_PASSWORD = re.compile(
    rf"((?<!\S)(?:{_CURL_USER.pattern})(?:\s+|=)?(['\"])?[^\s:'\"]{{1,200}}:)(?(2)(?:(?!\2)[^\n])+|[^\s'\"]+)"
)
_NAMED: tuple[tuple[re.Pattern[str], re.Pattern[str]], ...] = (
    (re.compile(r"([?&])([\w.~%-]+)="), re.compile(r"[^&\s#\"']*")),
    (re.compile(r"(['\"])([\w-]+)['\"]\s*:\s*"), re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|[^\s,}\]]+")),
    (re.compile(r"((?<![\w-]))([\w-]+)="), re.compile(_VALUE)),
    (re.compile(r"((?<![\w-]))(--?[A-Za-z][\w-]*)\s+"), re.compile(rf"(?!--?[A-Za-z]){_VALUE}")),
)
"""What is before a name, the name, and what is between; the value: in a URL's query, in JSON, in a shell's text."""
_COUNT = re.compile(
    r"tokens|(?:^|[_-])(?:num|max|min|n|new)[_-]|[_-](?:count|dim|ids?|index|len(?:gth)?|rate|size)$", re.IGNORECASE
)
_NUMBER = re.compile(r"[-+]?[\d.,]+(?:e[-+]?\d+)?(?![\w.])", re.IGNORECASE)
_SIGNATURE = re.compile(r"sig(nature)?$", re.IGNORECASE)


def redact_value(name: str, value: str) -> str:
    """The value of a variable; *** if the name looks like that of a secret."""
    return REDACTED if is_secret(name) else redact_text(value)


def redact_command(argv: Sequence[str]) -> str:
    """A command line, quoted for a shell, with *** in place of secrets."""
    return shlex.join(redact_arguments(argv))


def redact_arguments(argv: Sequence[str]) -> list[str]:
    """Arguments with *** in place of the value of each secret name, as in `--token X` and `TOKEN=X`, and of what
    `redact_text` masks."""
    curl = any(map(_CURL.search, argv))
    words = []
    line = " ".join(argv)
    programs = [(pattern, found[0]) for pattern, program in _PROGRAMS if (found := program.search(line))]
    for before, word in zip(("", *argv), argv, strict=False):
        is_flag = re.fullmatch(r"--[A-Za-z][\w-]*(=.*)?|-[A-Za-z]", word, re.DOTALL)
        user, colon, _ = word.partition(":")
        assignment = _ASSIGNMENT.match(word)
        name = assignment[1] if assignment and not is_count(assignment[1], word, assignment.end()) else ""
        if _FLAG.fullmatch(before) and is_secret(before) and not is_flag and not is_count(before, word):
            words.append(REDACTED)
        elif curl and colon and _CURL_USER.fullmatch(before):
            words.append(f"{user}:{REDACTED}")
        else:
            for pattern, program in programs:
                context = f"{program} {before[:100]} "
                secret = pattern.match(context + word)
                if secret and secret.start(3) >= len(context):
                    word = f"{word[: secret.start(3) - len(context)]}{REDACTED}"
            word = f"{name}={REDACTED}" if is_secret(name.removeprefix("--env=")) else redact_text(word)
            words.append(_CURL_PASSWORD.sub(rf"\1{REDACTED}", word) if curl else word)
    return words


def redact_text(text: str) -> str:
    """A text with *** in place of passwords in URLs, Authorization headers, known tokens, private keys and values of
    secret names. The number of lines stays."""
    return redact_names(redact_forms(text))


def redact_forms(text: str) -> str:
    """A text with *** in place of secrets that have a form of their own. Fast for a text of many lines."""
    text = _without_keys(text)
    for pattern, replacement in _MASKS:
        text = pattern.sub(replacement, text)
    for pattern, _ in _PROGRAMS:
        text = pattern.sub(rf"\1\2{REDACTED}", text)
    return text


def redact_names(text: str) -> str:
    """A text with *** in place of values of secret names, and of what belongs to curl's option for a user."""
    if _CURL.search(text):
        text = _CURL_PASSWORD.sub(rf"\1{REDACTED}", text)
    for name, value in _NAMED:
        text = "".join(_masked(text, name, value))
    return text


def safe_text(text: str) -> str:
    """A text of a task or a host without its secrets and control characters, to be saved and printed.

    Bytes that are not UTF-8, which are lone surrogates in it, become replacement characters.
    """
    return replace_surrogates(redact_text(plain(text)))  # an escape in a secret would hide it


def _without_keys(text: str) -> str:
    """The text with *** in place of each line between BEGIN and END, and of what is left of a key that was cut off."""
    parts = []
    done = 0
    marks = list(_PEM.finditer(text))
    if not marks:
        return text
    for mark, following in zip(marks, [*marks[1:], None], strict=True):
        if mark.start() < done:
            continue
        start, end = mark.end(), mark.end()
        if mark[1] == "END":
            start = _key_start(text, done, mark.start())
            end = mark.start()
        elif following and following[1] == "END" and following.start() - start <= _LARGEST_KEY:
            end = following.end()
        else:
            end = _key_end(text, start)
        ending = following[0] if following and end == following.end() else ""
        parts += [text[done:start], re.sub(r"[^\n]+", REDACTED, text[start : end - len(ending)]), ending]
        done = end
    return "".join([*parts, text[done:]])


def _key_end(text: str, start: int) -> int:
    """End of the line at `start` and of those after it that look like lines of a key, of which the last is short."""
    end = _line_end(text, start)
    in_key = False
    while end < len(text):
        following = _line_end(text, end + 1)
        is_full = _KEY_LINE.search(text, end + 1, following) is not None
        if not is_full and not (in_key and _LAST_KEY_LINE.fullmatch(text, end + 1, following)):
            return end
        end, in_key = following, is_full
    return end


def _key_start(text: str, first: int, end: int) -> int:
    """Start of the lines before `end` that look like lines of a key, of which the last is short."""
    last = start = text.rfind("\n", first, end) + 1 or first
    while start > first:
        above = text.rfind("\n", first, start - 1) + 1 or first
        if not _KEY_LINE.search(text, above, start):
            is_last = start == last and _LAST_KEY_LINE.fullmatch(text, above, start - 1)
            if not is_last or not _KEY_LINE.search(text, text.rfind("\n", first, above - 1) + 1 or first, above):
                return start
        start = above
    return start


def _line_end(text: str, start: int) -> int:
    end = text.find("\n", start)
    return len(text) if end < 0 else end


def _masked(text: str, named: "re.Pattern[str]", value: "re.Pattern[str]") -> Iterator[str]:
    """The parts of the text; a value without a secret name may hold secrets with names, as in `--env TOKEN=X`."""
    done = 0
    while match := named.search(text, done):
        yield text[done : match.end()]
        done = match.end()
        before, name = match.groups()
        if not is_secret(name) and not (before and _SIGNATURE.search(name)):
            continue
        secret = value.match(text, done)
        if secret is not None and not is_count(name, text, done):
            quote = ""
            if secret[0][:1] in ("'", '"') and before in ("'", '"'):
                quote = secret[0][0]
            yield f"{quote}{REDACTED}{quote}"
            done = secret.end()
    yield text[done:]


def is_secret(name: str) -> bool:
    """Whether the value with this name is masked in messages."""
    return _SECRET.search(name.removeprefix("-x")) is not None  # -xNAME=VALUE


def is_count(name: str, text: str, start: int = 0) -> bool:
    """Whether a name like `tokens_per_s` and the number at `start` of the text are no secret, but a measurement."""
    return _COUNT.search(name) is not None and _NUMBER.match(text, start) is not None
