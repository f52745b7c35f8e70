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

template <class IndexAt, class GotAt>
Comparison compare_elements(const HostTensor& got, std::span<const double> expected, double tolerance,
                            IndexAt index_at, GotAt got_at) {
  Comparison result;
  result.tolerance = tolerance;
  result.elements = got.elements();
  result.checked = static_cast<int64_t>(expected.size());
  double squares = 0;
  int64_t finite = 0;
  for (double value : expected)
    if (std::isfinite(value)) squares += value * value, ++finite;
  const double scale = finite > 0 ? std::sqrt(squares / static_cast<double>(finite)) : 0;
  int64_t worst = -1;
  for (int64_t i = 0; i < result.checked; ++i) {
    const double want = expected[i], have = got_at(i);
    double error;
    if (have == want || (std::isnan(have) && std::isnan(want))) {
      error = 0;
    } else if (!std::isfinite(have) || !std::isfinite(want)) {
      error = std::numeric_limits<double>::infinity();
    } else {
      error = std::abs(have - want) / std::max({std::abs(want), scale, std::numeric_limits<double>::min()});
    }
    if (error > tolerance) ++result.failed;
    if (worst < 0 || error > result.max_rel_err) {
      worst = i;
      result.max_rel_err = error, result.expected = want, result.got = have;
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
  std::vector<double> values = got.to_doubles();
  return compare_elements(
      got, expected, tolerance, [](int64_t i) { return i; }, [&](int64_t i) { return values[i]; });
}

Comparison compare_at(const HostTensor& got, std::span<const int64_t> indices,
                      std::span<const double> expected, double tolerance) {
  return compare_elements(
      got, expected, tolerance, [&](int64_t i) { return indices[i]; },
      [&](int64_t i) { return got.get(indices[i]); });
}

}  // namespace imbrex
