"""The unit of throughput: images, or what a user's own programs count as examples. Pure."""

from collections.abc import Iterable

from tfdist.bench.report.summary import ArmRow


def in_unit(text: str, rows: Iterable[ArmRow]) -> str:
    """`text` about these rows with `examples/s` in place of `images/s` if all of them ran the user's own program."""
    specs = [record.spec for row in rows for record in row.records]
    own = bool(specs) and all(spec.get("command") for spec in specs)
    return text.replace("images", "examples") if own else text
