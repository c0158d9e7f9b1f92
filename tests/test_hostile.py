"""The limits that generated cases are held to, themselves held to."""

from __future__ import annotations

import time

import pytest

from tests import hostile
from tests.hostile import within_limits


def test_a_case_may_not_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hostile, "SECONDS", 0.05)  # the timer that ends the process comes at ten times that
    with pytest.raises(AssertionError, match=r"took 0\.\d s"), within_limits():
        until = time.process_time() + 0.1
        while time.process_time() < until:
            pass


def test_a_case_may_not_take_much_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    # Far beyond what a machine short of memory may take from this process meanwhile: pages of files, above all.
    monkeypatch.setattr(hostile, "MEMORY", 2**28)
    with pytest.raises(AssertionError, match=r"took \d\d\d+ MiB"), within_limits():
        assert bytearray(3 * 2**29)[-1] == 0
    with within_limits():  # the peak of one case is not another's
        pass
    with pytest.raises(MemoryError), within_limits():
        bytearray(2**36)


def test_a_case_may_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hostile, "HANGS", 1)
    with pytest.raises(pytest.fail.Exception, match="was not done after 1 s"), within_limits():
        time.sleep(30)
