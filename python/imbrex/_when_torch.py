# SPDX-License-Identifier: Apache-2.0
"""Registers the operators with torch as soon as torch is imported, be it before this package or after. Nothing here
imports torch."""
import importlib.util
import sys


class _Finder:
    """Stands before the finders of sys.path for one name, until torch has been imported. Whoever only looks whether torch
    is installed asks it too."""

    is_asking = False

    def find_spec(self, name, path=None, target=None):
        if name != "torch" or self.is_asking:
            return None
        self.is_asking = True
        try:
            spec = importlib.util.find_spec("torch")
        finally:
            self.is_asking = False
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            _register()

        spec.loader.exec_module = exec_module
        return spec


def _register():
    try:
        from . import _torch

        _torch.register()
    except Exception as error:  # a torch of another time: its import goes on, and eager calls need no registration
        import warnings

        warnings.warn(f"imbrex: torch.ops.imbrex is not there, for this torch refuses the registration: {error}")


def register():
    if "torch" in sys.modules:
        _register()
    else:
        sys.meta_path.insert(0, _Finder())
