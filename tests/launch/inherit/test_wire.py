import json

import pytest

from tfdist.launch.inherit.wire import LONGEST, Lines


def test_messages_are_complete_at_the_end_of_their_line():
    lines, text = Lines(), json.dumps({"go": True}) + "\n" + json.dumps({"missing": []}) + "\n"
    received = [message for byte in text.encode() for message in lines.feed(bytes([byte]))]
    assert received == [{"go": True}, {"missing": []}] == Lines().feed(text.encode())


@pytest.mark.parametrize(
    "data",
    [b"SSH-2.0-x\n", b"[1]\n", b"\xff\n", b"{" * (LONGEST + 1), b"[" * 100_000 + b"\n"],
    ids=["text", "no object", "no UTF-8", "no end", "deep"],
)
def test_anything_else_is_an_error(data):
    with pytest.raises(ValueError, match=r"."):
        Lines().feed(data)
