// SPDX-License-Identifier: Apache-2.0
// The kernels of attention's backward pass, each verified from the same inputs as it has: among them what
// AttentionGradientRows computes of each row, from a forward pass.
#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include "attention/kv_arguments.h"
#include "attention/score_arguments.h"
#include "imbrex/core/error.h"
#include "imbrex/kernels/attention.h"
#include "imbrex/kernels/attention/gradient_kv.h"
#include "imbrex/kernels/attention/gradient_q.h"
#include "imbrex/kernels/attention/gradient_rows.h"
#include "imbrex/runtime/registry.h"

namespace imbrex::kernels {
namespace {

using OfKv = WithScoreOptions<AttentionGradientKv>;
using OfQ = WithScoreOptions<AttentionGradientQ>;

const std::vector<SizeOption> kSizes{{"heads", 4, "heads of Q, of all batches"},
                                     {"q", 300, "rows of Q per head"},
                                     {"kv", 300, "rows of K and V per head"},
                                     {"d", 128, "columns: the head's size, a multiple of 16, at most 128"},
                                     {"group", 1, "heads of Q that share one of K and V"},
                                     {"causal", 0, "1: row i sees the columns up to i + kv - q"},
                                     {"bf16", 0, "1: bfloat16, 0: float16"}};

/// A backward pass, as sizes of a registered kernel state it.
struct Problem {
  int64_t heads, q_size, kv_size, d, group, padded;
  DataType dtype;
  float scale;
  ScoreArguments steps;
  DeviceTensor q, k, v, d_o, rows;

  explicit Problem(Case& c)
      : heads(c.size("heads")),
        q_size(c.size("q")),
        kv_size(c.size("kv")),
        d(c.size("d")),
        group(c.size("group")),
        padded((q_size + 127) / 128 * 128),
        dtype(c.size("bf16") ? bfloat16 : float16),
        scale(1 / std::sqrt(static_cast<float>(d))) {
    if (group < 1 || heads % group != 0)
      throw LaunchError(Diagnostic{{},
                                   "attention: heads are not a multiple of the group",
                                   {},
                                   "give --heads as a multiple of --group"});
    q = c.input(dtype, {heads, q_size, d});
    k = c.input(dtype, {heads / group, kv_size, d});
    v = c.input(dtype, {heads / group, kv_size, d});
    d_o = c.input(dtype, {heads, q_size, d});
    rows = c.input(HostTensor(float32, {2, heads, padded}));
    steps.causal = c.size("causal") != 0;
    steps.slopes = steps.sinks = q.address();
    c.flop =
        static_cast<double>(heads * q_size) * static_cast<double>(kv_size * d) * (steps.causal ? 0.5 : 1);
    if (c.mode() == Case::Mode::kTrace) return;
    const Device& device = q.device();
    DeviceTensor o = DeviceTensor::empty(device, dtype, q.shape()),
                 log_sum = DeviceTensor::empty(device, float32, {heads, q_size});
    attention(q, k, v, o, {.causal = steps.causal, .log_sum_exp = log_sum}).expect_clean();
    Kernel<AttentionGradientRows> prepare({}, device);
    prepare(1, heads, q_size, padded, d, dtype, HeadArguments(o), HeadArguments(d_o), log_sum, rows)
        .expect_clean();
  }
};

/// Gradients of single elements in float64.
class Reference {
 public:
  Reference(const Case& c, const Problem& p)
      : p_(p),
        q_(c.values(p.q)),
        k_(c.values(p.k)),
        v_(c.values(p.v)),
        d_o_(c.values(p.d_o)),
        rows_(p.rows.to_host().to_doubles()) {}

  /// Element `e` of the gradient of K (of V, if `of_v`).
  double of_kv(int64_t e, bool of_v) const {
    const int64_t row = e / p_.d, head_kv = row / p_.kv_size, j = row % p_.kv_size;
    double total = 0;
    for (int64_t head = head_kv * p_.group; head < (head_kv + 1) * p_.group; ++head)
      for (int64_t i = 0; i < p_.q_size; ++i) {
        const int64_t at = (head * p_.q_size + i) * p_.d + e % p_.d;
        const Weight w = weigh(head, i, j);
        total += of_v ? w.weight * d_o_[at] : w.gradient * p_.scale * q_[at];
      }
    return total;
  }
  double of_q(int64_t e) const {
    const int64_t row = e / p_.d, head = row / p_.q_size, i = row % p_.q_size;
    double total = 0;
    for (int64_t j = 0; j < p_.kv_size; ++j)
      total +=
          weigh(head, i, j).gradient * p_.scale * k_[(head / p_.group * p_.kv_size + j) * p_.d + e % p_.d];
    return total;
  }

 private:
  struct Weight {
    double weight, gradient;
  };
  Weight weigh(int64_t head, int64_t i, int64_t j) const {
    if (p_.steps.causal && j > i + p_.kv_size - p_.q_size) return {0, 0};
    const double *q = q_.data() + (head * p_.q_size + i) * p_.d,
                 *d_o = d_o_.data() + (head * p_.q_size + i) * p_.d;
    const int64_t kv = (head / p_.group * p_.kv_size + j) * p_.d;
    const double score = p_.scale * std::inner_product(q, q + p_.d, k_.data() + kv, 0.0),
                 along = std::inner_product(d_o, d_o + p_.d, v_.data() + kv, 0.0);
    const double weight = std::exp2(score * 1.4426950408889634 - rows_[head * p_.padded + i]);
    return {weight, weight * (along - rows_[(p_.heads + head) * p_.padded + i])};
  }

  const Problem p_;
  std::vector<double> q_, k_, v_, d_o_, rows_;
};

/// States the reference of a gradient, some elements of it.
template <class Element>
void expect_some(Case& c, const DeviceTensor& gradient, int64_t summed, double tolerance,
                 const Element& element) {
  const int64_t samples = std::max<int64_t>((int64_t{1} << 27) / std::max<int64_t>(summed, 1), 200);
  c.expect_samples(gradient, element, samples, tolerance);
}

const KernelRegistration<OfKv> of_kv{
    {"attention_backward_kv", "gradients of attention by K and V", kSizes},
    [](Case& c, Kernel<OfKv>& kernel) {
      const Problem p(c);
      DeviceTensor dk = c.output(p.dtype, p.k.shape()), dv = c.output(p.dtype, p.v.shape());
      c.launch(kernel, 1, p.heads / p.group, p.q_size, p.padded, p.kv_size, p.d, p.d, p.group, p.scale,
               p.dtype, KvGradients::kBoth, HeadArguments(p.q), HeadArguments(p.k), HeadArguments(p.v),
               HeadArguments(p.d_o), p.rows, HeadArguments(dk), HeadArguments(dv), p.steps);
      c.flop *= 8;
      auto reference = std::make_shared<std::unique_ptr<Reference>>();
      const auto get = [&c, p, reference]() -> Reference& {
        if (!*reference) *reference = std::make_unique<Reference>(c, p);
        return **reference;
      };
      // Sums of terms of both signs, of which each is rounded to dtype.
      const double tolerance = 16 * default_tolerance(p.dtype);
      const int64_t summed = p.q_size * p.group * 2 * p.d;
      expect_some(c, dk, summed, tolerance, [get](int64_t e) { return get().of_kv(e, false); });
      expect_some(c, dv, summed, tolerance, [get](int64_t e) { return get().of_kv(e, true); });
    }};

const KernelRegistration<OfQ> of_q{
    {"attention_backward_q", "the gradient of attention by Q", kSizes}, [](Case& c, Kernel<OfQ>& kernel) {
      const Problem p(c);
      DeviceTensor dq = c.output(p.dtype, p.q.shape());
      c.launch(kernel, 1, p.heads, p.q_size, p.padded, p.kv_size, p.d, p.d, p.group, p.scale, p.dtype,
               HeadArguments(p.q), HeadArguments(p.k), HeadArguments(p.v), HeadArguments(p.d_o), p.rows,
               HeadArguments(dq), p.steps);
      c.flop *= 6;
      auto reference = std::make_shared<std::unique_ptr<Reference>>();
      const auto get = [&c, p, reference]() -> Reference& {
        if (!*reference) *reference = std::make_unique<Reference>(c, p);
        return **reference;
      };
      expect_some(c, dq, p.kv_size * 2 * p.d, 16 * default_tolerance(p.dtype),
                  [get](int64_t e) { return get().of_q(e); });
    }};

}  // namespace
}  // namespace imbrex::kernels
