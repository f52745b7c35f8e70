# SPDX-License-Identifier: Apache-2.0
"""Imbrex: tile-level GPU kernels, and a virtual GPU that checks them.

>>> import numpy as np, imbrex
>>> a, b = np.ones((64, 32), np.float16), np.ones((32, 48), np.float16)
>>> float(imbrex.matmul(a, b)[0, 0])
32.0

Arrays are those of PyTorch, CuPy, JAX and NumPy. On a CUDA GPU, kernels are launched on the stream on which the array's
library works, and calls return at once. Arrays of the host run on the virtual GPU, with every checker on.

- `matmul`, `gated_matmul`, `quantised_matmul`, `grouped_matmul`, `attention`, `attention_decode`, `attention_latent_decode`: products and attention.
- `softmax`, `layer_norm`, `rms_norm`, `rms_factors`, `gated`, `rope`, `cross_entropy`, `top_k`, `quantise_float8`: row by row.
- `transpose`: a matrix's copy with rows and columns exchanged.
- `Kernel`: a kernel of your own, in C++; `kernels`: those of the library, by name.
- `parallel`: several GPUs, a process each: collectives, and products fused with them.
- `VirtualGpu`: runs PTX of any compiler on the CPU and reports what is wrong with it.
- `checked`: a test that fails when the virtual GPU finds something.

docs/python.md is the way in.
"""
from ._imbrex import (
    Actor,
    CompileError,
    Device,
    DeviceError,
    Error,
    Finding,
    FindingError,
    InternalError,
    LaunchError,
    ParseError,
    Place,
    has_cuda,
    version as _version,
)
from ._checking import checked
from ._kernel import Kernel, kernels
from ._operators import attention, attention_decode, attention_latent_decode, gated_matmul, grouped_matmul, matmul, quantised_matmul
from ._rows import cross_entropy, gated, layer_norm, quantise_float8, rms_factors, rms_norm, rope, softmax, top_k, transpose
from ._virtual_gpu import Report, VirtualGpu
from . import _when_torch, parallel

__version__ = _version()
__all__ = [
    "Actor",
    "CompileError",
    "Device",
    "DeviceError",
    "Error",
    "Finding",
    "FindingError",
    "InternalError",
    "Kernel",
    "LaunchError",
    "ParseError",
    "Place",
    "Report",
    "VirtualGpu",
    "attention",
    "attention_decode",
    "attention_latent_decode",
    "checked",
    "cross_entropy",
    "gated",
    "gated_matmul",
    "grouped_matmul",
    "has_cuda",
    "kernels",
    "layer_norm",
    "matmul",
    "parallel",
    "quantise_float8",
    "quantised_matmul",
    "rms_factors",
    "rms_norm",
    "rope",
    "softmax",
    "top_k",
    "transpose",
]

_when_torch.register()
