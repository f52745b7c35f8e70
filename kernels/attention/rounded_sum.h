// SPDX-License-Identifier: Apache-2.0
// How far rounding may take sums of attention's kernels from float64, term by term: what verification allows.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "imbrex/core/error.h"
#include "imbrex/runtime/compare.h"

namespace imbrex::kernels {

/// A number is rounded to a type by at most `unit` of itself and, where it is small, by `least`.
struct TypeRounding {
  double unit, least;
};
inline TypeRounding rounding_to(DataType dtype) {
  if (dtype == bfloat16) return {0x1p-8, 0x1p-126};
  if (dtype == float16) return {0x1p-11, 0x1p-25};
  if (dtype == float8_e4m3) return {0x1p-4, 0x1p-10};
  throw InternalError("attention does not round to " + std::string(dtype.name()));
}

/// Tensor cores multiply without rounding; what adding `terms` of them costs, by the sum of their sizes. Those of float8 keep
/// 13 bits behind the point of the largest of 32 terms and the sum, all others those of float32.
inline double summing(int64_t terms, DataType factors) {
  const auto n = static_cast<double>(terms);
  return factors == float8_e4m3 ? (n / 32 + 1) * 0x1p-12 : n * 0x1p-24;
}
/// Of a hardware function and the multiplication in front of it: exp2, rsqrt.
inline constexpr double kApproximate = 0x1p-22;
/// Of the hardware's tanh, by itself.
inline constexpr double kTanh = 0x1.1p-11;

/// A sum of terms a * b, of which a was computed in float32 and is rounded to a type before it is multiplied.
class RoundedSum {
 public:
  /// `a` is off by at most `error` before it is rounded.
  void add(double a, double error, double b) {
    const double term = a * b;
    value_ += term, size_ += std::abs(term), squares_ += term * term;
    factors_ += std::abs(b), error_ += error * std::abs(b);
    ++terms_;
  }

  /// The sum times `factor`, whose relative error is `of_factor`, rounded to a type. `a_unit` is what 1 is where `a` is
  /// rounded: a's type has its smallest numbers by that.
  ///
  /// The terms' roundings are bounded by `unit` of each, and, since they have either sign, by six of their standard deviations
  /// together: of one term that is unit / sqrt(3) * 0.74, root mean square, the second factor being that of mantissas
  /// from 1 to 2. The smaller bound is taken; many terms are far more exact than the first says.
  Bounded result(TypeRounding a, double a_unit, DataType factors, TypeRounding result, double factor = 1,
                 double of_factor = 0) const {
    const double rounded = a.unit * std::min(size_, 6 * 0.74 / std::sqrt(3.0) * std::sqrt(squares_));
    const double sum = rounded + a.least * a_unit * factors_ + error_ + summing(terms_, factors) * size_;
    const double value = value_ * factor;
    return {value, std::abs(factor) * sum * (1 + of_factor) +
                       std::abs(value) * (result.unit + of_factor + kApproximate) + result.least};
  }
  int64_t terms() const { return terms_; }

 private:
  double value_ = 0, size_ = 0, squares_ = 0, factors_ = 0, error_ = 0;
  int64_t terms_ = 0;
};

}  // namespace imbrex::kernels
