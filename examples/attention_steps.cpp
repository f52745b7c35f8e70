// SPDX-License-Identifier: Apache-2.0
// Attention with a mask and a bias of one's own: documents packed one behind the other, in which a token sees its own
// document up to itself, and scores that fade with distance. Both are fused into the kernel; blocks of columns that no row
// of a tile sees are skipped.
#include <cmath>
#include <cstdio>
#include <vector>

#include "imbrex/imbrex.h"
#include "imbrex/kernels/attention/custom_attention.h"

using namespace imbrex;
using namespace imbrex::kernels;

/// A row sees the columns from the beginning of its document, begins[row], up to its own.
struct DocumentMask {
  using Parameters = ParameterList<Ptr<int32>, Int32>;
  Ptr<int32> begin_ptr;
  Int32 rows;

  GlobalTensor begins() const { return global_view(begin_ptr, {rows, 1}); }
  RegisterValue sees(const ScoreTile& at) const {
    auto row = at.row();
    auto begin = gather(begins(), {min(row, rows - 1), 0}, {row.shape(0), 1}, {.dims = {-1, 1}});
    return at.column() >= begin && at.column() <= row;
  }
  // The last row's document begins last of all.
  Expr sees_all(const ScoreBox& box) const {
    return box.first_column >= begins().item({min(box.last_row, rows - 1), 0}) &&
           box.last_column <= box.first_row;
  }
  ColumnRange columns(const RowRange& range) const {
    return {.begin = begins().item({range.first, 0}), .end = range.last + 1};
  }
};

/// score - rate * (row - column).
struct Fading {
  using Parameters = ParameterList<Float32>;
  Float32 rate;
  RegisterValue change(const RegisterBase& scores, const ScoreTile& at) const {
    return scores + (at.column() - at.row()).to(float32) * rate;
  }
};

int main() {
  const Device device = Device::open("auto", "sm_90a");
  const int64_t heads = 2, rows = 300, d = 64;
  const std::vector<int64_t> documents{0, 7, 140, 141, 260};  // where they begin
  const DeviceTensor q = DeviceTensor::random(device, bfloat16, {heads, rows, d}, 1),
                     k = DeviceTensor::random(device, bfloat16, {heads, rows, d}, 2),
                     v = DeviceTensor::random(device, bfloat16, {heads, rows, d}, 3),
                     o = DeviceTensor::empty(device, bfloat16, {heads, rows, d});
  HostTensor begin_of(int32, {rows});
  for (int64_t i = 0, document = 0; i < rows; ++i) {
    while (document + 1 < static_cast<int64_t>(documents.size()) && documents[document + 1] <= i) ++document;
    begin_of.set(i, static_cast<double>(documents[document]));
  }
  const DeviceTensor begins = DeviceTensor::from_host(device, begin_of);

  CustomAttention<DocumentMask, Fading> attend(device, {.block_kv = 64, .stages = 2});
  attend(q, k, v, o, {.long_first = true}, begins, rows, 0.1f).expect_clean();

  const std::vector<double> x = q.to_host().to_doubles(), y = k.to_host().to_doubles(),
                            z = v.to_host().to_doubles(), got = o.to_host().to_doubles();
  double worst = 0;
  for (int64_t r = 0; r < heads * rows; ++r) {
    const int64_t i = r % rows, first = r - i;
    std::vector<double> sums(d);
    double total = 0;
    for (int64_t j = static_cast<int64_t>(begin_of.get(i)); j <= i; ++j) {
      double score = 0;
      for (int64_t e = 0; e < d; ++e) score += x[r * d + e] * y[(first + j) * d + e];
      const double weight =
          std::exp(score / std::sqrt(static_cast<double>(d)) - 0.1 * static_cast<double>(i - j));
      total += weight;
      for (int64_t e = 0; e < d; ++e) sums[e] += weight * z[(first + j) * d + e];
    }
    for (int64_t e = 0; e < d; ++e) worst = std::fmax(worst, std::abs(got[r * d + e] - sums[e] / total));
  }
  std::printf("the largest difference from float64: %.4f\n", worst);
  return worst < 0.02 ? 0 : 1;
}
