// SPDX-License-Identifier: Apache-2.0
// Comparing a result with its reference, computed in float64.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "imbrex/core/dtype.h"
#include "imbrex/runtime/host_tensor.h"

namespace imbrex {

/// How far a result is from its reference.
///
/// The error of an element is |got - expected| / max(|expected|, r), where r is the root mean square of the
/// reference: relative where the value is of ordinary size, absolute on the scale of the result where it
/// happens to be near zero. NaN and infinity pass only where the reference is the same.
struct Comparison {
  bool passed = false;
  double max_rel_err = 0;        ///< the greatest error of an element
  double tolerance = 0;          ///< the greatest error that passes
  int64_t checked = 0;           ///< elements compared
  int64_t elements = 0;          ///< elements of the result
  int64_t failed = 0;            ///< elements beyond the tolerance
  std::vector<int64_t> worst;    ///< index of the element with the greatest error, one entry per dimension
  double expected = 0, got = 0;  ///< its values

  /// One line: how many elements agree or are wrong, and the worst one with both values.
  std::string format() const;
};

/// A reference, and how far a result may be from it.
struct Bounded {
  double value = 0, allowed = 0;
};

/// The tolerance for results that were accumulated in float32 and rounded once to `dtype`: about twice what
/// that rounding needs. 0 for integers.
double default_tolerance(DataType dtype);

/// Compares every element; `expected` has as many, row-major.
Comparison compare(const HostTensor& got, std::span<const double> expected, double tolerance);
/// Compares the elements at the row-major `indices`; `expected[i]` belongs to `indices[i]`.
Comparison compare_at(const HostTensor& got, std::span<const int64_t> indices,
                      std::span<const double> expected, double tolerance);
/// The same where each element has a bound of its own. `max_rel_err` and `tolerance` are the error of the worst element, which
/// is nearest to its bound or farthest beyond it, and that bound, both relative as above.
Comparison compare_at(const HostTensor& got, std::span<const int64_t> indices,
                      std::span<const Bounded> expected);

}  // namespace imbrex
