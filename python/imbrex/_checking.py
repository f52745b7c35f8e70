# SPDX-License-Identifier: Apache-2.0
"""Tests that fail when the virtual GPU finds something."""
from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

from . import _imbrex

_state = threading.local()

#: What host arrays run on in a checked test.
TARGETS = ("sm_80", "sm_90a", "sm_100a")


def saw(report) -> None:
    """Every report of the virtual GPU passes by: a checked test keeps those that are not clean."""
    if getattr(_state, "reports", None) is not None and not report.clean:
        _state.reports.append(report)


class _Checked:
    """Runs a body with the virtual GPUs of this seed, and keeps what they find."""

    def __init__(self, seed: int, checks: str):
        self.seed, self.checks = seed, checks

    def __enter__(self):
        self.before = getattr(_state, "reports", None)
        _state.reports = []
        for target in TARGETS:
            device = _imbrex.Device.virtual(target, seed=self.seed, checks=self.checks)
            _imbrex.set_default_virtual_gpu(target, device)
        return _state.reports

    def __exit__(self, *_):
        _state.reports = self.before
        for target in TARGETS:
            _imbrex.set_default_virtual_gpu(target, None)
        return False


class CheckFailure(AssertionError):
    """A checked test in which the virtual GPU found something. `reports` has what."""

    def __init__(self, text: str, reports: Sequence[Any]):
        super().__init__(text)
        self.reports = list(reports)


def checked(test: Callable | None = None, *, seeds: int | Sequence[int] = (0, 1), checks: str = "on") -> Callable:
    """A test that fails when the virtual GPU finds something, with the finding.

    >>> @imbrex.checked
    ... def test_scale():
    ...     x = np.ones(1000, np.float32)
    ...     scale(1000, x)
    ...     assert (x == 2).all()

    The test is called once for each of `seeds`, the orders in which warps run and asynchronous operations end: what
    kernels on host arrays do under each is checked, and so is what VirtualGpu.run reports. With the pytest plugin, which
    is there when the package is installed, a failure shows the finding instead of a traceback, and
    `pytest --imbrex-seeds 20` tries more orders.

    checks: "on", or "all", which is the same.
    """
    if test is None:
        return functools.partial(checked, seeds=seeds, checks=checks)
    given = tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds)

    @functools.wraps(test)
    def run(*arguments, **named):
        from . import pytest_plugin

        for seed in pytest_plugin.seeds or given:
            with _Checked(seed, checks) as reports:
                try:
                    test(*arguments, **named)
                except _imbrex.FindingError as error:
                    raise CheckFailure(f"seed {seed}: {error}", [error.report]) from None
                if reports:
                    raise CheckFailure(f"seed {seed}: " + "\n".join(map(str, reports)), reports)

    return run
