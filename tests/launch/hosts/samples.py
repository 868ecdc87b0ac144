import re

from hypothesis import strategies as st

ANY_TEXT = st.text(st.sampled_from("ab01-9,:@[]=#.%\"' \\\n*$\x00") | st.characters(codec="utf-8"), max_size=30)


def names(hosts):
    return [host.name for host in hosts]


def sane(host):
    return not host.name.startswith("-") and not host.target.startswith("-") and not re.search(r"\s", host.target)
