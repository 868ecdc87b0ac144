from tfdist.launch.agent_program.json_lines import LineReader, to_line


def test_lines_are_complete_at_their_end():
    reader, text = LineReader(), to_line({"go": True}) + to_line({"missing": []}) + b"rest"
    assert [line for byte in text for line in reader.feed(bytes([byte]))] == [b'{"go": true}', b'{"missing": []}']
    assert reader.rest == b"rest"
    assert LineReader().feed(text) == [b'{"go": true}', b'{"missing": []}']


def test_of_a_line_that_is_too_long_only_the_start_is_kept():
    reader = LineReader(4)
    assert reader.feed(b"123") == []
    assert reader.feed(b"45") == [b"12345"]
    assert reader.feed(b"678") == []
    assert reader.feed(b"678\n9\n") == [b"9"]
