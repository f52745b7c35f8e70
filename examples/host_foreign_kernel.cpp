// SPDX-License-Identifier: Apache-2.0
// Runs PTX of another compiler on the virtual GPU: nvcc's, of tests/foreign/cuda/row_statistics.cu, where
// clusters of two CTAs share tiles of a matrix that a tensor map describes.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

#include "imbrex/vgpu.h"

using namespace imbrex;

int main(int argc, char** argv) {
  const char* path = argc > 1 ? argv[1] : "tests/foreign/ptx/cuda_row_statistics.sm_90a.ptx";
  std::ifstream file(path);
  const std::string ptx((std::istreambuf_iterator<char>(file)), {});

  // A device and a module. Another seed is another schedule of warps, CTAs and asynchronous copies.
  vgpu::VirtualGpu gpu({.target = "sm_90a", .seed = 1});
  vgpu::Module module = gpu.load_module(ptx, path);
  vgpu::Function kernel = module.function("row_statistics");
  const vgpu::FunctionAttributes facts = kernel.attributes();
  std::printf("%s: %d threads at most, %d bytes of shared memory, %d bytes of parameters\n",
              kernel.name().c_str(), facts.max_threads, static_cast<int>(facts.static_shared_bytes),
              static_cast<int>(facts.parameter_bytes));

  // Memory, and a tensor map for boxes of 32 x 32; what lies outside the matrix reads as zero.
  const int rows = 70, columns = 100;
  std::vector<float> matrix(rows * columns), sums(rows), maxima(rows);
  for (int i = 0; i < rows * columns; ++i) matrix[i] = static_cast<float>(i * 37 % 101 - 50);
  const vgpu::DeviceAddress d_matrix = gpu.allocate(matrix.size() * 4), d_sums = gpu.allocate(rows * 4),
                            d_maxima = gpu.allocate(rows * 4);
  gpu.copy_to_device(d_matrix, matrix.data(), matrix.size() * 4);
  const uint64_t dims[] = {columns, rows}, strides[] = {columns * 4};  // innermost first
  const uint32_t box[] = {32, 32};
  const vgpu::TensorMap map = vgpu::encode_tensor_map({.type = vgpu::TensorMapType::kFloat32,
                                                       .address = d_matrix,
                                                       .dims = dims,
                                                       .strides_bytes = strides,
                                                       .box = box});

  // The parameter buffer as the kernel lays it out; pointers to the arguments (Launch::arguments) would do as
  // well.
  std::vector<std::byte> parameters(facts.parameter_bytes);
  const auto put = [&](size_t i, const auto& value) {
    std::memcpy(parameters.data() + kernel.parameters()[i].offset, &value, sizeof value);
  };
  put(0, map);
  put(1, d_sums);
  put(2, d_maxima);
  put(3, rows);
  put(4, columns);
  const vgpu::Report report = gpu.launch(
      kernel,
      {.grid = {2 * ((rows + 31) / 32)}, .cluster = {2}, .block = {32}, .parameter_buffer = parameters});
  if (!report.clean()) std::fputs(report.format().c_str(), stderr);

  gpu.copy_from_device(sums.data(), d_sums, rows * 4);
  gpu.copy_from_device(maxima.data(), d_maxima, rows * 4);
  int wrong = 0;
  for (int r = 0; r < rows; ++r) {
    float sum = 0, most = -1e30f;
    for (int c = 0; c < columns; ++c) {
      sum += matrix[r * columns + c];  // small integers: exact
      most = std::max(most, matrix[r * columns + c]);
    }
    wrong += sums[r] != sum || maxima[r] != most;
  }
  std::printf("%d rows wrong, %d findings, %d bytes by TMA\n", wrong,
              static_cast<int>(report.findings.size()), static_cast<int>(report.statistics.tma_bytes_loaded));
  return wrong == 0 && report.clean() ? 0 : 1;
}
