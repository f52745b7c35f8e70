// SPDX-License-Identifier: Apache-2.0
// Dense row-major tensors in host memory, and seeded generators of their contents.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "imbrex/core/dtype.h"

namespace imbrex {

/// A row-major tensor in host memory. Elements of less than a byte follow one another from the lowest bit
/// on, across rows too: a float4_e2m1 of even index is in the low half of its byte, four 6-bit elements
/// take three bytes.
class HostTensor {
 public:
  HostTensor() = default;
  /// All bytes are zero. LaunchError for a negative extent.
  HostTensor(DataType dtype, std::vector<int64_t> shape);

  DataType dtype() const { return dtype_; }
  /// Extents in elements, outermost first.
  const std::vector<int64_t>& shape() const { return shape_; }
  /// The product of the extents.
  int64_t elements() const;
  /// The memory, rounded up to whole bytes.
  std::span<std::byte> bytes() { return bytes_; }
  std::span<const std::byte> bytes() const { return bytes_; }

  /// Element `index` (row-major) as a double: exact, except for 64-bit integers beyond 2^53.
  double get(int64_t index) const;
  /// Stores `value` at `index` (row-major), rounded to nearest even; for integers truncated and saturated.
  void set(int64_t index, double value);
  /// All elements, row-major, as get() gives them.
  std::vector<double> to_doubles() const;
  /// The elements first ... first + count - 1 (row-major), written to `out`.
  void to_doubles(int64_t first, int64_t count, double* out) const;

  /// Normally distributed numbers of mean 0 and the given standard deviation, rounded to the element
  /// type; their magnitudes where the type has no sign (for float8_e8m0 powers of two). Integers get
  /// uniform values in [-8, 8], unsigned ones in [0, 16], those of less than a byte any of theirs, whatever
  /// the deviation. A seed gives the same tensor on every machine.
  static HostTensor random(DataType dtype, std::vector<int64_t> shape, uint64_t seed, double deviation = 1.0);
  /// 0, 1, 2, ... modulo 256: for looking at data movement.
  static HostTensor iota(DataType dtype, std::vector<int64_t> shape);

 private:
  DataType dtype_ = float32;
  std::vector<int64_t> shape_;
  std::vector<std::byte> bytes_;
};

}  // namespace imbrex
