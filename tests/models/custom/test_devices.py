import sys
from types import SimpleNamespace

import pytest

from tfdist.models.custom.devices import wait_for


@pytest.mark.parametrize(("initialized", "waits"), [(True, 1), (False, 0)])
def test_a_window_edge_waits_for_the_gpu_that_pytorch_uses(
    monkeypatch: pytest.MonkeyPatch, initialized: bool, waits: int
) -> None:
    calls: list[None] = []
    cuda = SimpleNamespace(is_initialized=lambda: initialized, synchronize=lambda: calls.append(None))
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    wait_for(None)
    assert len(calls) == waits
