// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "imbrex/core/error.h"
#include "imbrex/kernels/attention.h"
#include "imbrex/runtime/registry.h"

namespace imbrex {
namespace kernels {
namespace {

/// Attention in float64, element by element; keeps the weights of the last row.
class Reference {
 public:
  Reference(const Case& c, const DeviceTensor& q, const DeviceTensor& k, const DeviceTensor& v, bool causal,
            double scale)
      : q_(c.values(q)),
        k_(c.values(k)),
        v_(c.values(v)),
        rows_(q.shape()[1]),
        columns_(k.shape()[1]),
        d_(q.shape()[2]),
        group_(q.shape()[0] / k.shape()[0]),
        causal_(causal),
        scale_(scale) {}

  double operator()(int64_t element) {
    const int64_t row = element / d_;
    if (row != row_) weigh(row);
    const double* v = v_.data() + first_kv(row) * d_ + element % d_;
    double sum = 0;
    for (size_t j = 0; j < weights_.size(); ++j) sum += weights_[j] * v[static_cast<int64_t>(j) * d_];
    return sum;
  }

 private:
  int64_t first_kv(int64_t row) const { return row / rows_ / group_ * columns_; }

  void weigh(int64_t row) {
    row_ = row;
    const int64_t i = row % rows_;
    weights_.resize(causal_ ? std::clamp<int64_t>(i + 1 + columns_ - rows_, 0, columns_) : columns_);
    if (weights_.empty()) return;
    const double* q = q_.data() + row * d_;
    const double* k = k_.data() + first_kv(row) * d_;
    for (double& weight : weights_) {
      weight = scale_ * std::inner_product(q, q + d_, k, 0.0);
      k += d_;
    }
    const double largest = *std::max_element(weights_.begin(), weights_.end());
    for (double& weight : weights_) weight = std::exp(weight - largest);
    const double total = std::accumulate(weights_.begin(), weights_.end(), 0.0);
    for (double& weight : weights_) weight /= total;
  }

  std::vector<double> q_, k_, v_;
  int64_t rows_, columns_, d_, group_;
  bool causal_;
  double scale_;
  int64_t row_ = -1;
  std::vector<double> weights_;  // of row_
};

const KernelRegistration<Attention> registration{
    {"attention",
     "softmax(Q K^T / sqrt(d)) V: the scores stay on the chip",
     {{"heads", 4, "heads of Q, of all batches"},
      {"q", 300, "rows of Q per head"},
      {"kv", 300, "rows of K and V per head"},
      {"d", 128, "columns: the head's size, a multiple of 16, at most 128"},
      {"group", 1, "heads of Q that share one of K and V"},
      {"causal", 0, "1: row i sees the columns up to i + kv - q"},
      {"bf16", 0, "1: bfloat16, 0: float16"}}},
    [](Case& c, Kernel<Attention>& kernel) {
      const int64_t heads = c.size("heads"), rows = c.size("q"), columns = c.size("kv"), d = c.size("d"),
                    group = c.size("group");
      if (group < 1 || heads % group != 0)
        throw LaunchError(Diagnostic{{},
                                     fmt::format("attention: {} heads in groups of {}", heads, group),
                                     {},
                                     "give --heads as a multiple of --group"});
      const bool causal = c.size("causal") != 0;
      const DataType dtype = c.size("bf16") ? bfloat16 : float16;
      const float scale = 1 / std::sqrt(static_cast<float>(d));
      DeviceTensor q = c.input(dtype, {heads, rows, d}), k = c.input(dtype, {heads / group, columns, d}),
                   v = c.input(dtype, {heads / group, columns, d}), o = c.output(dtype, {heads, rows, d});
      c.launch(kernel, heads, rows, columns, d, group, causal, scale, dtype, q, k, v, o);
      c.attention = StatedAttention{q, k, v, o, scale, causal};
      c.flop =
          4.0 * static_cast<double>(heads * rows) * static_cast<double>(columns * d) * (causal ? 0.5 : 1);
      // Where checking all rows takes too long, a sample: an element of it costs as much as a row.
      constexpr int64_t kProducts = int64_t{1} << 29;
      const int64_t row = 2 * columns * d, all = heads * rows;
      const int64_t samples = all * row <= kProducts ? all * d : std::max<int64_t>(kProducts / row, 500);
      std::shared_ptr<Reference> reference;
      c.expect_samples(
          o,
          [&](int64_t element) {
            if (!reference) reference = std::make_shared<Reference>(c, q, k, v, causal, scale);
            return (*reference)(element);
          },
          samples, 3 * default_tolerance(dtype));  // the weights are rounded to dtype as well
    }};

}  // namespace
}  // namespace kernels
}  // namespace imbrex
