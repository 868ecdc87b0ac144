"""Our own package as a zip: hosts need not have it, and all of a job run the same version by construction."""

import base64
import io
from functools import cache
from importlib.util import find_spec
from pathlib import Path

ROOMS = ("cli", "launch", "strategies", "models", "bench")


@cache
def package_zip() -> bytes:
    """All of `tfdist` as it is installed here, data files and the version included."""
    import zipfile  # these two are needed for other hosts only
    from importlib.metadata import version

    buffer, number = io.BytesIO(), version("tfdist")
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1, strict_timestamps=False) as archive:
        for room in ROOMS:
            folder = room_folder(room)
            for path in sorted(folder.rglob("*")):
                if path.is_file() and "__pycache__" not in path.parts:
                    archive.write(path, f"tfdist/{room}/{path.relative_to(folder).as_posix()}")
        metadata = f"Metadata-Version: 2.1\nName: tfdist\nVersion: {number}\n"
        archive.writestr(f"tfdist-{number}.dist-info/METADATA", metadata)
    return buffer.getvalue()


def package_text() -> str:
    """The zip in base64, as it travels in a message."""
    return base64.b64encode(package_zip()).decode()


def room_folder(room: str) -> Path:
    """Where one of our packages is installed."""
    found = find_spec(f"tfdist.{room}")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent
