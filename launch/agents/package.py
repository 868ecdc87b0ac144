"""The tfdist package as a zip, sent to hosts: they need no installation, and all tasks run the same version."""

import base64
import io
import zlib
from functools import cache
from importlib.util import find_spec
from pathlib import Path

_PACKAGES = ("tfdist", *(f"tfdist.{name}" for name in ("cli", "launch", "strategies", "models", "bench")))


@cache
def package_zip() -> bytes:
    """All installed files of tfdist, data files included. Works for wheels and for editable installs."""
    import zipfile  # only jobs on other hosts need it

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", strict_timestamps=False) as archive:
        for package in _PACKAGES:
            folder = _folder(package)
            for path in sorted(folder.glob("*") if package == "tfdist" else folder.rglob("*")):
                if path.is_file() and "__pycache__" not in path.parts:
                    archive.write(path, f"{package.replace('.', '/')}/{path.relative_to(folder).as_posix()}")
    return buffer.getvalue()


def package_text() -> str:
    """The zip, compressed as a whole (half the size of small files on their own) and in base64, for `Prepare`."""
    return base64.b64encode(zlib.compress(package_zip())).decode()


def _folder(package: str) -> Path:
    spec = find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent
