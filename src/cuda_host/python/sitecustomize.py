# SPDX-License-Identifier: Apache-2.0
"""Found by Python under `imbrex run`, which puts this folder in front of PYTHONPATH: prepares the few packages that need
it when a program imports them, and leaves everything else, the machine's own sitecustomize included, as it is."""
import ctypes
import glob
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _keep_ptx_when_linking():
    # The wheels' own libnvJitLink makes machine code. Loaders take one that is there already.
    for library in glob.glob(os.path.join(os.path.dirname(_HERE), "libnvJitLink.so.*")):
        ctypes.CDLL(library)


def _compute_torchs_operators():
    if os.environ.get("IMBREX_TORCH_OPERATORS") != "native":
        import imbrex_torch

        imbrex_torch.activate()


def _launch_tuned_kernels_once():
    if os.environ.get("IMBREX_TRITON_AUTOTUNE") != "measure":
        import imbrex_triton

        imbrex_triton.activate()


# Package: what is done before it is imported, and after.
_PREPARED = {
    "cuda.bindings": (_keep_ptx_when_linking, None),
    "numba": (_keep_ptx_when_linking, None),
    "torch": (None, _compute_torchs_operators),
    "triton.runtime.autotuner": (None, _launch_tuned_kernels_once),
}


class _OnImport(importlib.abc.MetaPathFinder):
    def __init__(self):
        self.left = dict(_PREPARED)

    def find_spec(self, name, path, target=None):
        if name not in self.left:
            return None
        before, after = self.left.pop(name)
        if before is not None:
            before()
        if after is None:
            return None
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                after()

            spec.loader.exec_module = exec_module
        return spec


def _run_the_machines_own():
    elsewhere = [folder for folder in sys.path if os.path.abspath(folder or ".") != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


_run_the_machines_own()
sys.meta_path.insert(0, _OnImport())
