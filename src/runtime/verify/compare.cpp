// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "imbrex/core/error.h"
#include "imbrex/runtime/compare.h"

namespace imbrex {

double default_tolerance(DataType dtype) {
  switch (dtype.code) {
    case DataType::kFloat64:
      return 1e-12;
    case DataType::kFloat32:
      return 2e-5;
    case DataType::kTFloat32:
    case DataType::kFloat16:
      return 1e-3;  // half a unit in the last place is 2^-11 = 4.9e-4
    case DataType::kBFloat16:
      return 8e-3;  // 2^-8 = 3.9e-3
    case DataType::kFloat8E4M3:
      return 0.125;  // 2^-4
    case DataType::kFloat8E5M2:
      return 0.25;  // 2^-3
    case DataType::kFloat6E2M3:
      return 0.125;
    case DataType::kFloat6E3M2:
      return 0.25;
    case DataType::kFloat4E2M1:
      return 0.5;  // 2^-2
    default:
      return 0;  // integers are exact
  }
}

namespace {

/// `expected_at(i)` is what element `i` is compared with, allowed_at(i, r) how far it may be off, r being the root mean
/// square of the reference.
template <class IndexAt, class GotAt, class ExpectedAt, class AllowedAt>
Comparison compare_elements(const HostTensor& got, int64_t checked, const IndexAt& index_at,
                            const GotAt& got_at, const ExpectedAt& expected_at, const AllowedAt& allowed_at) {
  Comparison result;
  result.elements = got.elements();
  result.checked = checked;
  double squares = 0;
  int64_t finite = 0;
  for (int64_t i = 0; i < checked; ++i)
    if (const double value = expected_at(i); std::isfinite(value)) squares += value * value, ++finite;
  const double scale = finite > 0 ? std::sqrt(squares / static_cast<double>(finite)) : 0;
  int64_t worst = -1;
  double worst_part = 0;
  for (int64_t i = 0; i < checked; ++i) {
    const double want = expected_at(i), have = got_at(i),
                 unit = std::max({std::abs(want), scale, std::numeric_limits<double>::min()});
    double error;
    if (have == want || (std::isnan(have) && std::isnan(want))) {
      error = 0;
    } else if (!std::isfinite(have) || !std::isfinite(want)) {
      error = std::numeric_limits<double>::infinity();
    } else {
      error = std::abs(have - want) / unit;
    }
    const double allowed = allowed_at(i, unit);
    if (error > allowed) ++result.failed;
    const double part = error == 0 ? 0 : error / allowed;
    if (worst < 0 || part > worst_part || (part == worst_part && error > result.max_rel_err)) {
      worst = i, worst_part = part;
      result.max_rel_err = error, result.tolerance = allowed, result.expected = want, result.got = have;
    }
  }
  if (worst >= 0) {
    int64_t flat = index_at(worst);
    for (auto extent = got.shape().rbegin(); extent != got.shape().rend(); ++extent) {
      result.worst.insert(result.worst.begin(), flat % *extent);
      flat /= *extent;
    }
  }
  result.passed = result.failed == 0;
  return result;
}

}  // namespace

std::string Comparison::format() const {
  std::string where =
      fmt::format("worst at [{}]: got {:.9g}, expected {:.9g}, error {:.3g} of {:.3g} allowed",
                  fmt::join(worst, ", "), got, expected, max_rel_err, tolerance);
  if (passed) return fmt::format("{} of {} elements agree; {}", checked, elements, where);
  return fmt::format("{} of {} elements are wrong; {}", failed, checked, where);
}

Comparison compare(const HostTensor& got, std::span<const double> expected, double tolerance) {
  if (static_cast<int64_t>(expected.size()) != got.elements())
    throw InternalError(
        fmt::format("reference of {} elements for a result of {}", expected.size(), got.elements()));
  const std::vector<double> values = got.to_doubles();
  Comparison result = compare_elements(
      got, got.elements(), [](int64_t i) { return i; }, [&](int64_t i) { return values[i]; },
      [&](int64_t i) { return expected[i]; }, [&](int64_t, double) { return tolerance; });
  result.tolerance = tolerance;
  return result;
}

Comparison compare_at(const HostTensor& got, std::span<const int64_t> indices,
                      std::span<const double> expected, double tolerance) {
  Comparison result = compare_elements(
      got, static_cast<int64_t>(expected.size()), [&](int64_t i) { return indices[i]; },
      [&](int64_t i) { return got.get(indices[i]); }, [&](int64_t i) { return expected[i]; },
      [&](int64_t, double) { return tolerance; });
  result.tolerance = tolerance;
  return result;
}

Comparison compare_at(const HostTensor& got, std::span<const int64_t> indices,
                      std::span<const Bounded> expected) {
  return compare_elements(
      got, static_cast<int64_t>(expected.size()), [&](int64_t i) { return indices[i]; },
      [&](int64_t i) { return got.get(indices[i]); }, [&](int64_t i) { return expected[i].value; },
      [&](int64_t i, double unit) { return expected[i].allowed / unit; });
}

}  // namespace imbrex
