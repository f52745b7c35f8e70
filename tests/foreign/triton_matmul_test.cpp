// SPDX-License-Identifier: Apache-2.0
// triton/matmul.py as Triton 3.6 compiled it: mma.sync behind cp.async, wgmma and tcgen05 behind TMA,
// warp-specialised persistent loops, block-scaled products.
#include "foreign_testing.h"

namespace imbrex::vgpu {
namespace {

constexpr DeviceAddress kNoScratch = 0;

/// The tensor map of rows of four-bit elements: two in each byte, or spread to 16 bytes for every 16 of them.
TensorMap packed_map(DeviceAddress address, int64_t rows, int64_t columns, bool padded) {
  const uint64_t dims[] = {static_cast<uint64_t>(padded ? columns : columns / 2),
                           static_cast<uint64_t>(rows)};
  const uint64_t strides[] = {static_cast<uint64_t>(columns) / 2};
  const uint32_t box[] = {padded ? 128u : 64u, 128};
  return encode_tensor_map({.type = padded ? TensorMapType::kPacked16U4Padded : TensorMapType::kUInt8,
                            .address = address,
                            .dims = dims,
                            .strides_bytes = strides,
                            .box = box,
                            .swizzle = padded ? TensorMapSwizzle::k128B : TensorMapSwizzle::k64B});
}

class TritonMatmul : public ForeignSeeds {};
INSTANTIATE_TEST_SUITE_P(Seeds, TritonMatmul, testing::Values(0, 1, 2));

/// a(row of m, column of k) @ b(row of k, column of n) in float64.
template <class A, class B>
std::vector<double> product(int m, int n, int k, A a, B b) {
  std::vector<double> result(static_cast<size_t>(m * n));
  for (int i = 0; i < m; ++i)
    for (int l = 0; l < k; ++l) {
      const double x = a(i, l);
      for (int j = 0; j < n; ++j) result[static_cast<size_t>(i * n + j)] += x * b(l, j);
    }
  return result;
}

TEST_P(TritonMatmul, ByPointersOfRaggedSizes) {
  struct Size {
    int m, n, k;
  };
  for (const std::string target : {"sm_80", "sm_90a", "sm_100a"})
    for (const auto [m, n, k] : {Size{128, 64, 32}, Size{150, 77, 112}, Size{1, 3, 16}}) {
      Foreign kernel("triton_matmul_pointers." + target, seed());
      const int stride_b = (n + 15) / 16 * 16;
      const auto a = kernel.uniform<Half>(m * k), b = kernel.uniform<Half>(k * stride_b);
      const DeviceAddress c = kernel.output(m * n * 4);
      const int tiles = (m + 127) / 128 * ((n + 63) / 64);
      kernel.run({.grid = {tiles}}, kernel.input(a), kernel.input(b), c, m, n, k, k, stride_b, n, kNoScratch,
                 kNoScratch);
      const auto at = [](const std::vector<Half>& x, int i) { return value(x[static_cast<size_t>(i)]); };
      const auto expected = product(
          m, n, k, [&](int i, int l) { return at(a, i * k + l); },
          [&](int l, int j) { return at(b, l * stride_b + j); });
      expect_close(kernel.read<float>(c, m * n), expected, 1e-5, k * 1e-6);
    }
}

/// a[m, k] @ b[n, k].T by a kernel that takes three tensor descriptors, then what `more` gives.
template <class... More>
void check_descriptors(Foreign& kernel, int m, int n, int k, Dim3 grid, More... more) {
  const auto a = kernel.uniform<Half>(m * k), b = kernel.uniform<Half>(n * k);
  const DeviceAddress da = kernel.input(a), db = kernel.input(b), dc = kernel.output(m * n * 2);
  const int64_t one = 1;
  kernel.run({.grid = grid}, matrix_map<Half>(da, m, k, 128), m, k, int64_t{k}, one,
             matrix_map<Half>(db, n, k, 128), n, k, int64_t{k}, one, matrix_map<Half>(dc, m, n, 128), m, n,
             int64_t{n}, one, more..., kNoScratch, kNoScratch);
  const auto at = [](const std::vector<Half>& x, int i) { return value(x[static_cast<size_t>(i)]); };
  const auto expected = product(
      m, n, k, [&](int i, int l) { return at(a, i * k + l); },
      [&](int l, int j) { return at(b, j * k + l); });
  expect_close(kernel.read<Half>(dc, m * n), expected, 0x1p-10, k * 1e-5);
}

struct Size {
  int m, n, k;
};
constexpr Size kSizes[] = {{128, 128, 64}, {200, 136, 264}, {8, 24, 8}};

TEST_P(TritonMatmul, ByTensorDescriptors) {
  for (const std::string name : {"descriptors.sm_90a", "descriptors.sm_100a", "specialized.sm_100a"})
    for (const auto [m, n, k] : kSizes) {
      Foreign kernel("triton_matmul_" + name, seed());
      check_descriptors(kernel, m, n, k, {(m + 127) / 128, (n + 127) / 128}, k);
    }
}

TEST_P(TritonMatmul, PersistentOverTensorDescriptors) {
  for (const std::string target : {"sm_90a", "sm_100a"})
    for (const auto [m, n, k] : {Size{128, 128, 64}, Size{300, 264, 72}, Size{400, 128, 136}}) {
      Foreign kernel("triton_matmul_persistent." + target, seed());
      const int programs = 2;
      check_descriptors(kernel, m, n, k, {programs}, m, n, k, programs);
    }
}

struct Scaled {
  std::string name;
  arith::FloatFormat a, b, scale;
  int group;
};

/// Random patterns of one format with a scale for each group along k, on the device and decoded.
struct ScaledMatrix {
  DeviceAddress bytes, scales;
  std::vector<double> values;
};

ScaledMatrix draw(Foreign& kernel, const arith::FloatFormat& format, const Scaled& c, int rows, int k) {
  ScaledMatrix m;
  std::vector<uint8_t> bytes, scales;
  for (int i = 0; i < rows * k / c.group; ++i) {
    const bool power_of_two = c.scale.mantissa_bits == 0;
    scales.push_back(static_cast<uint8_t>(power_of_two ? kernel.integers(1, 122, 131)[0]
                                                       : kernel.integers(1, 0x20, 0x4F)[0]));
  }
  for (int i = 0; i < rows * k; ++i) {
    const uint64_t bits = arith::encode(format, kernel.uniform<double>(1, -6, 6)[0]);
    m.values.push_back(arith::decode(format, bits) *
                       arith::decode(c.scale, scales[static_cast<size_t>(i / c.group)]));
    const bool high_half = format.bits == 4 && i % 2 == 1;
    if (!high_half) bytes.push_back(0);
    bytes.back() = static_cast<uint8_t>(bytes.back() | bits << (high_half ? 4 : 0));
  }
  m.bytes = kernel.input(bytes);
  m.scales = kernel.input(scales);
  return m;
}

TEST_P(TritonMatmul, BlockScaled) {
  for (const Scaled& c : {Scaled{"mxf8", arith::kE4M3, arith::kE5M2, arith::kUE8M0, 32},
                          Scaled{"mxf4", arith::kE2M1, arith::kE2M1, arith::kUE8M0, 32},
                          Scaled{"mxf8_mxf4", arith::kE4M3, arith::kE2M1, arith::kUE8M0, 32},
                          Scaled{"nvf4", arith::kE2M1, arith::kE2M1, arith::kE4M3, 16}}) {
    const int m = 256, n = 128, k = 384;
    Foreign kernel("triton_matmul_" + c.name + ".sm_100a", seed());
    const ScaledMatrix a = draw(kernel, c.a, c, m, k), b = draw(kernel, c.b, c, n, k);
    const DeviceAddress dc = kernel.output(m * n * 4);
    // Packed fours are bytes to the kernel, unless the other operand is wider: then the copies spread them.
    const bool padded = c.a.bits != c.b.bits;
    const auto columns = [&](const arith::FloatFormat& f) { return f.bits == 4 && !padded ? k / 2 : k; };
    const auto map = [&](DeviceAddress address, const arith::FloatFormat& f, int rows) {
      if (f.bits == 8) return matrix_map<uint8_t>(address, rows, k, 128);
      return packed_map(address, rows, k, padded);
    };
    const auto stride = [&](const arith::FloatFormat& f) { return int64_t{k} * f.bits / 8; };
    const int64_t one = 1;
    kernel.run({.grid = {m / 128, n / 128}}, map(a.bytes, c.a, m), m, columns(c.a), stride(c.a), one,
               a.scales, map(b.bytes, c.b, n), n, columns(c.b), stride(c.b), one, b.scales, dc, n, k,
               kNoScratch, kNoScratch);
    const auto expected = product(
        m, n, k, [&](int i, int l) { return a.values[static_cast<size_t>(i * k + l)]; },
        [&](int l, int j) { return b.values[static_cast<size_t>(j * k + l)]; });
    expect_close(kernel.read<float>(dc, m * n), expected, 1e-4, 0.1);
  }
}

}  // namespace
}  // namespace imbrex::vgpu
