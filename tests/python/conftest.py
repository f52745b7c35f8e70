# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest


@pytest.fixture
def random(request):
    """Numbers without a pattern, the same in every run of a test."""
    seed = sum(map(ord, request.node.name))
    generator = np.random.default_rng(seed)
    return lambda *shape, dtype=np.float32: generator.standard_normal(shape).astype(dtype)
