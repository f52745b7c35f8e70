# SPDX-License-Identifier: Apache-2.0
"""CuPy: a raw kernel, one of a raw module with templates, element-wise and reduction kernels, fused functions; all by
NVRTC."""
import cupy
import numpy as np

x = cupy.asarray(np.random.default_rng().standard_normal(1003).astype(np.float32))
host = x.get()

raw = cupy.RawKernel(r"""
    extern "C" __global__ void saxpy(float a, const float* x, const float* y, float* out, int n) {
      int i = blockDim.x * blockIdx.x + threadIdx.x;
      if (i < n) out[i] = a * x[i] + y[i];
    }
""", "saxpy")
out = cupy.full_like(x, np.nan)
raw((8,), (128,), (np.float32(2), x, x, out, np.int32(x.size)))
assert np.allclose(out.get(), 3 * host)

module = cupy.RawModule(code=r"""
    template <typename T> __global__ void reverse(const T* in, T* out, int n) {
      int i = blockDim.x * blockIdx.x + threadIdx.x;
      if (i < n) out[n - 1 - i] = in[i];
    }
""", name_expressions=["reverse<float>"])
module.get_function("reverse<float>")((8,), (128,), (x, out, np.int32(x.size)))
assert np.array_equal(out.get(), host[::-1])

square = cupy.ElementwiseKernel("float32 x, float32 y", "float32 z", "z = (x - y) * (x - y)", "squared_difference")
assert np.allclose(square(x, cupy.float32(1)).get(), (host - 1) ** 2, atol=1e-6)
norm = cupy.ReductionKernel("T x", "T y", "x * x", "a + b", "y = sqrt(a)", "0", "l2norm")
assert np.isclose(norm(x).get(), np.linalg.norm(host.astype(np.float64)), rtol=1e-5)


@cupy.fuse
def fused(a, b):
    return cupy.sin(a) * b + 2


assert np.allclose(fused(x, out).get(), np.sin(host) * host[::-1] + 2, atol=1e-5)

matrix = x[:1000].reshape(25, 40)
assert np.allclose(matrix.T.sum(axis=0).get(), host[:1000].reshape(25, 40).sum(1), atol=1e-4)
assert np.array_equal(cupy.where(x > 0, x, 0).get(), np.where(host > 0, host, 0))
# By cuBLAS, which CuPy opens by its full path (--with-blas).
assert np.allclose((matrix @ matrix.T).get(), host[:1000].reshape(25, 40) @ host[:1000].reshape(25, 40).T, atol=1e-3)
print("cupy ok")
