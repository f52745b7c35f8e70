# SPDX-License-Identifier: Apache-2.0
"""Whether two configurations of a kernel computed the same."""
from __future__ import annotations

from typing import Any


def _host(array: Any):
    """A copy on the host as float64, or None for what is no array."""
    import numpy as np

    if hasattr(array, "detach"):  # torch
        return array.detach().double().cpu().numpy().copy()
    if hasattr(array, "get") and hasattr(array, "__cuda_array_interface__"):  # CuPy
        return array.get().astype(np.float64)
    if hasattr(array, "__array__") and getattr(array, "ndim", 0) > 0:
        return np.array(array, np.float64)
    return None


class _Results:
    def __init__(self, arguments):
        self.expected = [_host(argument) for argument in arguments]

    def same(self, arguments) -> bool:
        import numpy as np

        for argument, expected in zip(arguments, self.expected):
            if expected is None:
                continue
            scale = np.nanmax(np.abs(expected), initial=0)
            got = _host(argument)
            if not np.allclose(got, expected, rtol=1e-2, atol=1e-2 * scale + 1e-30, equal_nan=True):
                return False
        return True


def compare(arguments) -> _Results:
    """What the arrays hold now, to compare with later."""
    return _Results(arguments)
