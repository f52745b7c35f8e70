# SPDX-License-Identifier: Apache-2.0
"""PyCUDA: a kernel of one's own, compiled by nvcc, element-wise kernels and reductions of arrays, streams and events."""
import numpy as np
import pycuda.autoinit  # noqa: F401
import pycuda.driver as driver
import pycuda.gpuarray as gpuarray
from pycuda.compiler import SourceModule
from pycuda.elementwise import ElementwiseKernel

random = np.random.default_rng()

module = SourceModule("""
    __constant__ float factor;
    __global__ void transpose(float *out, const float *in, int rows, int cols) {
      __shared__ float tile[16][17];
      int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
      if (x < cols && y < rows) tile[threadIdx.y][threadIdx.x] = in[y * cols + x];
      __syncthreads();
      x = blockIdx.y * 16 + threadIdx.x, y = blockIdx.x * 16 + threadIdx.y;
      if (x < rows && y < cols) out[y * rows + x] = factor * tile[threadIdx.x][threadIdx.y];
    }
""")
rows, cols = 37, 53
matrix = random.standard_normal((rows, cols)).astype(np.float32)
out = np.full((cols, rows), np.nan, np.float32)
driver.memcpy_htod(module.get_global("factor")[0], np.float32(2))
transpose = module.get_function("transpose")
transpose(driver.Out(out), driver.In(matrix), np.int32(rows), np.int32(cols), block=(16, 16, 1),
          grid=((cols + 15) // 16, (rows + 15) // 16))
assert np.array_equal(out, 2 * matrix.T)

a, b = random.standard_normal((2, 1001)).astype(np.float32)
on_gpu = gpuarray.to_gpu(a)
assert np.allclose((2 * on_gpu + 1).get(), 2 * a + 1)
assert np.allclose(gpuarray.sum(on_gpu).get(), a.sum(dtype=np.float64), rtol=1e-4, atol=1e-4)
combine = ElementwiseKernel("float s, float *x, float *y, float *z", "z[i] = s * x[i] + y[i]", "combine")
z = gpuarray.empty_like(on_gpu)
combine(3, on_gpu, gpuarray.to_gpu(b), z)
assert np.allclose(z.get(), 3 * a + b, atol=1e-5)

stream, start, stop = driver.Stream(), driver.Event(), driver.Event()
pinned = driver.pagelocked_empty(1001, np.float32)
start.record(stream)
driver.memcpy_dtoh_async(pinned, on_gpu.gpudata, stream)
stop.record(stream)
stop.synchronize()
assert np.array_equal(pinned, a) and stop.time_since(start) >= 0
print("pycuda ok")
