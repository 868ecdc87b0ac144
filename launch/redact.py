"""Masks secrets in what is printed or saved: values of secret names, passwords in URLs, HTTP headers, known tokens.

Rather too much is masked than too little. A password without a name, as an argument by itself, cannot be recognized.
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
_VALUE = r"""("[^"]*"|'[^']*'|\S+)"""
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
    (  # tokens of GitHub, Hugging Face, Slack, GitLab, AWS, OpenAI and Google, and JSON web tokens
        r"(?-i:(?<![\w-])(?:gh[oprsu]_\w{10,}|github_pat_\w{10,}|hf_[A-Za-z0-9]{16,}|xox[abeprs]-[\w-]{10,}"
        r"|glpat-[\w-]{10,}|(?:AKIA|ASIA)[A-Z0-9]{16}(?![\w-])|eyJ[\w-]{16,}(?:\.[\w-]*)*"
        r"|sk-(?=[A-Za-z_-]{0,40}\d)[\w-]{16,}|AIza[\w-]{30,}))",
        REDACTED,
    ),
)
_MASKS = [(re.compile(pattern, re.IGNORECASE), replacement) for pattern, replacement in _MASKED]
"""What is masked wherever it is, and the text in its place, in the order in which they are applied."""
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
_SIGNATURE = re.compile(r"sig(nature)?$", re.IGNORECASE)


def redact_value(name: str, value: str) -> str:
    """The value of a variable; *** if the name looks like that of a secret."""
    return REDACTED if _is_secret(name) else redact_text(value)


def redact_command(argv: Sequence[str]) -> str:
    """A command line, quoted for a shell, with *** in place of secrets."""
    return shlex.join(redact_arguments(argv))


def redact_arguments(argv: Sequence[str]) -> list[str]:
    """Arguments with *** in place of the value of each secret name, as in `--token X` and `TOKEN=X`, and of what
    `redact_text` masks."""
    curl, words = any(map(_CURL.search, argv)), []
    for before, word in zip(("", *argv), argv, strict=False):
        is_flag = re.fullmatch(r"--[A-Za-z][\w-]*(=.*)?|-[A-Za-z]", word, re.DOTALL)
        user, colon, _ = word.partition(":")
        assignment = _ASSIGNMENT.match(word)
        name = assignment[1] if assignment else ""
        if _FLAG.fullmatch(before) and _is_secret(before) and not is_flag:
            words.append(REDACTED)
        elif curl and colon and _CURL_USER.fullmatch(before):
            words.append(f"{user}:{REDACTED}")
        else:
            word = f"{name}={REDACTED}" if _is_secret(name.removeprefix("--env=")) else redact_text(word)
            words.append(_CURL_PASSWORD.sub(rf"\1{REDACTED}", word) if curl else word)
    return words


def redact_text(text: str) -> str:
    """A text with *** in place of passwords in URLs, Authorization headers, known tokens and values of secret names."""
    for pattern, replacement in _MASKS:
        text = pattern.sub(replacement, text)
    if _CURL.search(text):
        text = _CURL_PASSWORD.sub(rf"\1{REDACTED}", text)
    for name, value in _NAMED:
        text = "".join(_masked(text, name, value))
    return text


def safe_text(text: str) -> str:
    """A text of a task or a host without its secrets and control characters, to be saved and printed.

    Bytes that are not UTF-8, which are lone surrogates in it, become replacement characters.
    """
    return replace_surrogates(plain(redact_text(text)))


def _masked(text: str, named: "re.Pattern[str]", value: "re.Pattern[str]") -> Iterator[str]:
    """The parts of the text; a value without a secret name may hold secrets with names, as in `--env TOKEN=X`."""
    done = 0
    while match := named.search(text, done):
        yield text[done : match.end()]
        done = match.end()
        before, name = match.groups()
        secret = value.match(text, done) if _is_secret(name) or (before and _SIGNATURE.search(name)) else None
        if secret is not None:
            quote = secret[0][0] if secret[0][:1] in ("'", '"') and before in ("'", '"') else ""
            yield f"{quote}{REDACTED}{quote}"
            done = secret.end()
    yield text[done:]


def _is_secret(name: str) -> bool:
    return _SECRET.search(name.removeprefix("-x")) is not None  # -xNAME=VALUE
