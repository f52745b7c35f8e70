// SPDX-License-Identifier: Apache-2.0
// Dense row-major tensors on a device and on the host, seeded generators, and comparison with float64
// references.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "imbrex/core/dtype.h"
#include "imbrex/runtime/device.h"

namespace imbrex {

/// A row-major tensor in host memory. Elements of less than a byte follow one another from the lowest bit on,
/// across rows too: a float4_e2m1 of even index is in the low half of its byte, four 6-bit elements take
/// three bytes.
class HostTensor {
 public:
  HostTensor() = default;
  HostTensor(DataType dtype, std::vector<int64_t> shape);

  DataType dtype() const { return dtype_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  int64_t elements() const;  ///< the product of the extents
  std::span<std::byte> bytes() { return bytes_; }
  std::span<const std::byte> bytes() const { return bytes_; }

  /// Element `index` (row-major), exactly.
  double get(int64_t index) const;
  /// Stores `value` rounded to nearest even (integers: truncated and saturated).
  void set(int64_t index, double value);
  /// All elements, exactly (64-bit integers beyond 2^53 are rounded).
  std::vector<double> to_doubles() const;
  /// A copy of one row-major run of elements as doubles: elements first ... first + count - 1.
  void to_doubles(int64_t first, int64_t count, double* out) const;

  /// Normal numbers of mean 0, rounded to the element type; magnitudes of them where the type has no sign
  /// (powers of two for float8_e8m0); integers get uniform values in [-8, 8] (unsigned [0, 16]). The same
  /// seed gives the same tensor on every machine.
  static HostTensor random(DataType dtype, std::vector<int64_t> shape, uint64_t seed, double deviation = 1.0);
  /// 0, 1, 2, ... modulo 256: for looking at data movement.
  static HostTensor iota(DataType dtype, std::vector<int64_t> shape);

 private:
  DataType dtype_ = float32;
  std::vector<int64_t> shape_;
  std::vector<std::byte> bytes_;
};

/// A row-major tensor in device memory. A handle: copies share the memory, freed with the last one.
class DeviceTensor {
 public:
  DeviceTensor() = default;
  /// Uninitialised memory.
  static DeviceTensor empty(const Device& device, DataType dtype, std::vector<int64_t> shape);
  /// Element type and shape without memory: enough to trace a kernel, not to launch it.
  static DeviceTensor shape_only(DataType dtype, std::vector<int64_t> shape);
  static DeviceTensor from_host(const Device& device, const HostTensor& host);
  static DeviceTensor random(const Device& device, DataType dtype, std::vector<int64_t> shape, uint64_t seed);

  bool is_null() const { return !memory_; }
  DataType dtype() const { return dtype_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  int64_t bytes() const;         ///< of the whole tensor
  uint64_t address() const;      ///< as kernels see it
  const Device& device() const;  ///< LaunchError for a null tensor

  HostTensor to_host() const;              ///< waits for the device, and copies
  void copy_from(const HostTensor& host);  ///< LaunchError unless type and shape are equal
  /// Fills the memory with 0xFF bytes: NaN in every float type, so that an element never written is noticed.
  void poison();
  /// Frees the memory now; later use of any handle is an error.
  void release();

 private:
  struct Memory;
  std::shared_ptr<Memory> memory_;
  DataType dtype_ = float32;
  std::vector<int64_t> shape_;
};

/// How far a result is from its reference.
///
/// An element's error is |got - expected| / max(|expected|, r), r the root mean square of the reference:
/// relative where the value is of ordinary size, absolute on the result's own scale where it happens to be
/// near zero. NaN and infinity pass only where the reference is the same.
struct Comparison {
  bool passed = false;
  double max_rel_err = 0;
  double tolerance = 0;
  int64_t checked = 0;           // elements compared
  int64_t elements = 0;          // elements of the result
  int64_t failed = 0;            // elements beyond the tolerance
  std::vector<int64_t> worst;    // index of the worst element
  double expected = 0, got = 0;  // there

  /// One line: passed or not, the worst element with both values.
  std::string format() const;
};

/// The tolerance that one rounding to `dtype` after fp32 accumulation needs, with a factor of about two in
/// hand.
double default_tolerance(DataType dtype);

/// Compares every element.
Comparison compare(const HostTensor& got, std::span<const double> expected, double tolerance);
/// Compares the elements at `indices` (row-major) with `expected[i]`.
Comparison compare_at(const HostTensor& got, std::span<const int64_t> indices,
                      std::span<const double> expected, double tolerance);

}  // namespace imbrex
