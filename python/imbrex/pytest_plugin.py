# SPDX-License-Identifier: Apache-2.0
"""The pytest plugin: findings instead of tracebacks, and `--imbrex-seeds`. pytest loads it by its entry point."""
from __future__ import annotations

#: What `--imbrex-seeds` asks for; None: what each test asks for.
seeds: range | None = None


def pytest_addoption(parser):
    parser.getgroup("imbrex").addoption(
        "--imbrex-seeds",
        type=int,
        metavar="N",
        help="run each test of @imbrex.checked under N seeds of the virtual GPU",
    )


def pytest_configure(config):
    global seeds
    asked = config.getoption("--imbrex-seeds")
    if asked is not None:
        import pytest

        if asked < 1:
            raise pytest.UsageError(f"--imbrex-seeds is {asked}: give 1 or more")
        seeds = range(asked)


def pytest_unconfigure(config):
    global seeds
    seeds = None


def pytest_runtest_makereport(item, call):
    """A finding is the whole message: where the Python was when the kernel failed says less than the kernel's line."""
    error = call.excinfo.value if call.excinfo is not None else None
    if error is None or type(error).__name__ not in ("CheckFailure", "FindingError"):
        return None
    import imbrex
    from _pytest.reports import TestReport

    from ._checking import CheckFailure

    if not isinstance(error, (CheckFailure, imbrex.FindingError)):
        return None
    report = TestReport.from_item_and_call(item, call)
    report.longrepr = f"the virtual GPU found something wrong\n{error}"
    return report
