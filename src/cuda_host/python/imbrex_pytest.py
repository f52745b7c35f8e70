# SPDX-License-Identifier: Apache-2.0
"""A plugin of pytest, which `imbrex check` loads: a test fails by what its launches were found to do."""
import ctypes
import glob
import json
import os

import pytest


class _Findings:
    """What the processes of the run write down (src/cuda_host/host/run_log.h), read as it comes."""

    def __init__(self, folder):
        # Beside other workers of pytest-xdist, a worker sees its own launches.
        process = str(os.getpid()) if "PYTEST_XDIST_WORKER" in os.environ else "*"
        self.pattern = os.path.join(folder, f"process-{process}.jsonl")
        self.read = {}

    def take(self):
        found = []
        for name in sorted(glob.glob(self.pattern)):
            with open(name, "rb") as file:
                file.seek(self.read.get(name, 0))
                data = file.read()
            data = data[: data.rfind(b"\n") + 1]
            self.read[name] = self.read.get(name, 0) + len(data)
            entries = [json.loads(line) for line in data.splitlines()]
            found += [e for e in entries if e.get("type") == "finding" and e.get("severity") != "note"]
        return found


def _tell_anew():
    """A finding that an earlier test had is one of the next test, too."""
    try:
        library = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return  # nothing has used CUDA yet
    if hasattr(library, "imbrexBeginTest"):
        library.imbrexBeginTest()


class _Plugin:
    def __init__(self, folder):
        self.findings = _Findings(folder)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item):
        _tell_anew()

    @pytest.hookimpl(hookwrapper=True, trylast=True)
    def pytest_runtest_makereport(self, item, call):
        outcome = yield
        report = outcome.get_result()
        found = self.findings.take()
        if not found:
            return
        text = "\n".join(f"imbrex: in {one['kernel']}\n{one['text']}" for one in found)
        if report.outcome == "passed":
            report.outcome = "failed"
            report.longrepr = text
        else:
            report.sections.append(("imbrex", text))


def pytest_configure(config):
    folder = os.environ.get("IMBREX_RUN_FOLDER")
    if folder:
        config.pluginmanager.register(_Plugin(folder), "imbrex-findings")
