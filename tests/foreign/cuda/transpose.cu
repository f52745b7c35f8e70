// SPDX-License-Identifier: Apache-2.0
// Transposition through a padded tile of shared memory, for elements of any size.
template <class T>
__device__ void transpose(const T* in, T* out, int rows, int columns) {
  __shared__ T tile[32][33];
  const int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y;
  for (int i = 0; i < 32; i += 8)
    if (row + i < rows && column < columns) tile[threadIdx.y + i][threadIdx.x] = in[(row + i) * columns + column];
  __syncthreads();
  const int to_column = blockIdx.y * 32 + threadIdx.x, to_row = blockIdx.x * 32 + threadIdx.y;
  for (int i = 0; i < 32; i += 8)
    if (to_row + i < columns && to_column < rows) out[(to_row + i) * rows + to_column] = tile[threadIdx.x][threadIdx.y + i];
}

extern "C" __global__ void transpose_by_size(const void* in, void* out, int rows, int columns, int element_bytes) {
  switch (element_bytes) {
    case 2:
      return transpose(static_cast<const short*>(in), static_cast<short*>(out), rows, columns);
    case 8:
      return transpose(static_cast<const double*>(in), static_cast<double*>(out), rows, columns);
    default:
      return transpose(static_cast<const float*>(in), static_cast<float*>(out), rows, columns);
  }
}
