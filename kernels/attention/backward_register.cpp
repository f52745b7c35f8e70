// SPDX-License-Identifier: Apache-2.0
// The kernels of attention's backward pass, each verified from the same inputs as it has: among them what
// AttentionGradientRows computes of each row, from a forward pass.
#include <algorithm>
#include <cmath>
#include <memory>

#include "attention/kv_arguments.h"
#include "attention/packed_case.h"
#include "attention/reference.h"
#include "attention/score_arguments.h"
#include "imbrex/core/error.h"
#include "imbrex/kernels/attention.h"
#include "imbrex/kernels/attention/gradient_all.h"
#include "imbrex/kernels/attention/gradient_kv.h"
#include "imbrex/kernels/attention/gradient_kv_large.h"
#include "imbrex/kernels/attention/gradient_q.h"
#include "imbrex/kernels/attention/gradient_rows.h"
#include "imbrex/kernels/attention/gradient_sums.h"
#include "imbrex/runtime/registry.h"

namespace imbrex::kernels {
namespace {

using OfKv = WithScoreOptions<AttentionGradientKv>;
using OfLargeKv = WithScoreOptions<AttentionGradientKvLarge>;
using OfQ = WithScoreOptions<AttentionGradientQ>;
using OfAll = WithScoreOptions<AttentionGradientAll>;

std::vector<SizeOption> sizes() {
  return {{"heads", 4, "heads of Q, of all batches"},
          {"q", 300, "rows of Q per head"},
          {"kv", 300, "rows of K and V per head"},
          {"d", 128, "columns: the head's size, a multiple of 16, at most 256"},
          {"group", 1, "heads of Q that share one of K and V"},
          {"causal", 0, "1: row i sees the columns up to i + kv - q"},
          {"bf16", 0, "1: bfloat16, 0: float16"},
          {"sequences", 0, "packed sequences that the rows are divided among, unevenly; 0: none"},
          {"dv", 0, "columns of V and O; 0: as d"},
          {"window", 0, "columns that a row sees, its own the last; 0: all"},
          {"cap", 0, "bound of the scores, by tanh; 0: none"},
          {"alibi", 0, "1: a bias by distance, of each head"}};
}

/// A backward pass, as sizes of a registered kernel state it.
struct Problem {
  int64_t heads, q_size, kv_size, d, d_v, group, padded;
  DataType dtype;
  float scale;
  ScoreArguments steps;
  DeviceTensor q, k, v, d_o, rows, slopes, q_at, kv_at;
  std::vector<int64_t> q_begins{0}, kv_begins{0};  // of sequences, and where the last one ends

  explicit Problem(Case& c)
      : heads(c.size("heads")),
        q_size(c.size("q")),
        kv_size(c.size("kv")),
        d(c.size("d")),
        d_v(c.size("dv") > 0 ? c.size("dv") : d),
        group(c.size("group")),
        padded(c.size("sequences") > 0 ? (q_size / 16 + c.size("sequences")) * 16
                                       : (q_size + 127) / 128 * 128),
        dtype(c.size("bf16") ? bfloat16 : float16),
        scale(1 / std::sqrt(static_cast<float>(d))) {
    if (group < 1 || heads % group != 0)
      throw LaunchError(Diagnostic{{},
                                   "attention: heads are not a multiple of the group",
                                   {},
                                   "give --heads as a multiple of --group"});
    q = c.input(dtype, {heads, q_size, d});
    k = c.input(dtype, {heads / group, kv_size, d});
    v = c.input(dtype, {heads / group, kv_size, d_v});
    d_o = c.input(dtype, {heads, q_size, d_v});
    rows = c.input(HostTensor(float32, {2, heads, padded}));
    if (const int64_t sequences = c.size("sequences"); sequences > 0) {
      q_begins = divided(q_size, sequences, 101), kv_begins = divided(kv_size, sequences, 57);
      q_at = as_input(c, q_begins), kv_at = as_input(c, kv_begins);
    } else {
      q_begins.push_back(q_size), kv_begins.push_back(kv_size);
    }
    steps.causal = c.size("causal") != 0, steps.window = c.size("window") > 0;
    steps.soft_cap = c.size("cap") > 0, steps.alibi = c.size("alibi") != 0;
    steps.left = c.size("window") - 1, steps.cap = static_cast<float>(c.size("cap")), steps.heads = heads;
    slopes = steps.alibi ? c.input(float32, {heads}, 0.02) : q;
    steps.slopes = slopes.address(), steps.sinks = q.address();
    c.flop =
        static_cast<double>(heads * q_size) * static_cast<double>(kv_size * d) * (steps.causal ? 0.5 : 1);
    if (c.mode() == Case::Mode::kTrace) return;
    const Device& device = q.device();
    DeviceTensor o = DeviceTensor::empty(device, dtype, d_o.shape()),
                 log_sum = DeviceTensor::empty(device, float32, {heads, q_size});
    AttentionOptions options{.causal = steps.causal, .log_sum_exp = log_sum};
    options.q_begins = q_at, options.kv_begins = kv_at;
    if (steps.window) options.window_left = steps.left, options.window_right = 0;
    options.soft_cap = steps.cap;
    if (steps.alibi) options.alibi_slopes = slopes;
    attention(q, k, v, o, options).expect_clean();
    Kernel<AttentionGradientRows> prepare({}, device);
    prepare(1, heads, q_size, padded, d_v, dtype, HeadArguments(o), HeadArguments(d_o), log_sum, rows,
            packed())
        .expect_clean();
  }
  PackedArguments packed() const { return {q_at, kv_at, q.address()}; }
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
        rows_(p.rows.to_host().to_doubles()) {
    if (p.steps.alibi) slopes_ = c.values(p.slopes);
  }

  /// Element `e` of the gradient of K (of V, if `of_v`).
  Bounded of_kv(int64_t e, bool of_v) const {
    const int64_t d = of_v ? p_.d_v : p_.d, row = e / d, head_kv = row / p_.kv_size, j = row % p_.kv_size;
    RoundedSum sum;
    for (int64_t head = head_kv * p_.group; head < (head_kv + 1) * p_.group; ++head)
      for (int64_t i = 0; i < p_.q_size; ++i) {
        const Weight w = weigh(head, i, j);
        if (w.weight == 0) continue;
        const int64_t at = (head * p_.q_size + i) * d + e % d;
        if (of_v)
          sum.add(w.weight, w.error, d_o_[at]);
        else
          sum.add(w.gradient, w.of_gradient, q_[at]);
      }
    return bounded(sum, of_v ? 1 : p_.scale);
  }
  Bounded of_q(int64_t e) const {
    const int64_t row = e / p_.d, head = row / p_.q_size, i = row % p_.q_size;
    RoundedSum sum;
    for (int64_t j = 0; j < p_.kv_size; ++j)
      if (const Weight w = weigh(head, i, j); w.weight != 0)
        sum.add(w.gradient, w.of_gradient, k_[(head / p_.group * p_.kv_size + j) * p_.d + e % p_.d]);
    return bounded(sum, p_.scale);
  }

 private:
  Bounded bounded(const RoundedSum& sum, double factor) const {
    return sum.result(rounding_to(p_.dtype), 1, p_.dtype, rounding_to(p_.dtype), factor);
  }

  /// A weight and its gradient, and how far float32 may be off.
  struct Weight {
    double weight = 0, error = 0, gradient = 0, of_gradient = 0;
  };
  Weight weigh(int64_t head, int64_t i, int64_t j) const {
    const size_t s = sequence_of(p_.q_begins, i);
    const int64_t column = j - p_.kv_begins[s], columns = p_.kv_begins[s + 1] - p_.kv_begins[s],
                  at = i - p_.q_begins[s] + columns - (p_.q_begins[s + 1] - p_.q_begins[s]);
    if (column < 0 || column >= columns || (p_.steps.causal && column > at) ||
        (p_.steps.window && (column > at || column < at - p_.steps.left)))
      return {};
    const int64_t kv = head / p_.group * p_.kv_size + j, of_row = head * p_.q_size + i;
    RowScore score = score_of(q_.data() + of_row * p_.d, k_.data() + kv * p_.d, p_.d, p_.scale, p_.dtype);
    double slope = 1, of_slope = 0;
    if (p_.steps.soft_cap) {
      const double t = std::tanh(score.value / p_.steps.cap);
      slope = 1 - t * t,
      of_slope = 2 * t * t * kTanh + 2 * std::abs(t) * score.error / p_.steps.cap + 0x1p-22;
      score = capped(score, p_.steps.cap);
    }
    if (p_.steps.alibi) {
      const double bias = slopes_[head] * static_cast<double>(column - at);
      score = {score.value + bias, score.error + 0x1p-23 * (std::abs(score.value) + std::abs(bias))};
    }
    const int64_t row =
        p_.q_at.is_null() ? i : (p_.q_begins[s] / 16 + static_cast<int64_t>(s)) * 16 + i - p_.q_begins[s];
    const double log_sum = rows_[head * p_.padded + row], own = rows_[(p_.heads + head) * p_.padded + row];
    const RowScore along =
        score_of(d_o_.data() + of_row * p_.d_v, v_.data() + kv * p_.d_v, p_.d_v, 1, p_.dtype);
    Weight w;
    w.weight = std::exp2(score.value * 1.4426950408889634 - log_sum);
    w.error =
        w.weight * (score.error + 0x1p-23 * (std::abs(score.value) + std::abs(log_sum) + 1) + kApproximate);
    const double difference = along.value - own,
                 of_difference = along.error + (0x1p-22 + summing(p_.d_v, p_.dtype)) * std::abs(own);
    w.gradient = w.weight * difference * slope;
    w.of_gradient = w.error * std::abs(difference) * slope + w.weight * slope * of_difference +
                    w.weight * std::abs(difference) * of_slope + kApproximate * std::abs(w.gradient);
    return w;
  }

  const Problem p_;
  std::vector<double> q_, k_, v_, d_o_, rows_, slopes_;
};

/// What a case expects of gradients, of some elements of each. The reference is made when the first element is asked for.
class Gradients {
 public:
  Gradients(Case& c, const Problem& p) : case_(c), p_(p) {}
  void of_q(const DeviceTensor& dq) const {
    expect(dq, p_.kv_size * 2 * p_.d, [](const Reference& r, int64_t e) { return r.of_q(e); });
  }
  void of_k(const DeviceTensor& dk) const { of_kv(dk, false); }
  void of_v(const DeviceTensor& dv) const { of_kv(dv, true); }

 private:
  void of_kv(const DeviceTensor& gradient, bool is_v) const {
    expect(gradient, p_.q_size * p_.group * 2 * p_.d,
           [is_v](const Reference& r, int64_t e) { return r.of_kv(e, is_v); });
  }
  template <class Element>
  void expect(const DeviceTensor& gradient, int64_t summed, Element element) const {
    const auto of = [&c = case_, p = p_, made = reference_, element](int64_t e) {
      if (!*made) *made = std::make_unique<Reference>(c, p);
      return element(**made, e);
    };
    case_.expect_within(gradient, of,
                        std::max<int64_t>((int64_t{1} << 27) / std::max<int64_t>(summed, 1), 200));
  }

  Case& case_;
  const Problem p_;
  std::shared_ptr<std::unique_ptr<Reference>> reference_ = std::make_shared<std::unique_ptr<Reference>>();
};

template <class OfHeads>
void run_of_kv(Case& c, Kernel<OfHeads>& kernel) {
  const Problem p(c);
  DeviceTensor dk = c.output(p.dtype, p.k.shape()), dv = c.output(p.dtype, p.v.shape());
  c.launch(kernel, 1, p.heads / p.group, p.q_size, p.padded, p.kv_size, p.d, p.d_v, p.group, p.scale, p.dtype,
           HeadArguments(p.q), HeadArguments(p.k), HeadArguments(p.v), HeadArguments(p.d_o), p.rows,
           HeadArguments(dk), HeadArguments(dv), p.packed(), p.steps);
  c.flop *= 8;
  const Gradients expected(c, p);
  expected.of_k(dk);
  expected.of_v(dv);
}

const KernelRegistration<OfKv> of_kv{
    {"attention_backward_kv", "gradients of attention by K and V, of heads of at most 128", sizes()},
    run_of_kv<OfKv>};

const KernelRegistration<OfLargeKv> of_large_kv{
    {"attention_backward_kv_large", "gradients of attention by K and V, of heads of more than 128", sizes()},
    run_of_kv<OfLargeKv>};

const KernelRegistration<OfQ> of_q{
    {"attention_backward_q", "the gradient of attention by Q", sizes()}, [](Case& c, Kernel<OfQ>& kernel) {
      const Problem p(c);
      DeviceTensor dq = c.output(p.dtype, p.q.shape());
      c.launch(kernel, 1, p.heads, p.q_size, p.padded, p.kv_size, p.d, p.d_v, p.group, p.scale, p.dtype,
               HeadArguments(p.q), HeadArguments(p.k), HeadArguments(p.v), HeadArguments(p.d_o), p.rows,
               HeadArguments(dq), p.packed(), p.steps);
      c.flop *= 6;
      Gradients(c, p).of_q(dq);
    }};

const KernelRegistration<OfAll> of_all{
    {"attention_backward_all", "gradients of attention by Q, K and V, in the order in which CTAs add",
     sizes()},
    [](Case& c, Kernel<OfAll>& kernel) {
      const Problem p(c);
      DeviceTensor dk = c.output(p.dtype, p.k.shape()), dv = c.output(p.dtype, p.v.shape());
      const DeviceTensor sums = c.input(HostTensor(float32, {p.heads, (p.q_size + 63) / 64, p.d / 8, 64, 8})),
                         turns = c.input(HostTensor(int32, {p.heads * ((p.q_size + 63) / 64) + 1}));
      c.launch(kernel, 1, p.heads / p.group, p.q_size, p.padded, p.kv_size, p.d, p.group, p.scale, p.dtype,
               HeadArguments(p.q), HeadArguments(p.k), HeadArguments(p.v), HeadArguments(p.d_o), p.rows, sums,
               turns, HeadArguments(dk), HeadArguments(dv), p.steps);
      c.flop *= 10;
      const Gradients expected(c, p);
      expected.of_k(dk);
      expected.of_v(dv);
      if (c.mode() == Case::Mode::kTrace) return;
      DeviceTensor dq = DeviceTensor::empty(p.q.device(), p.dtype, p.q.shape());  // not this kernel's traffic
      dq.poison();
      Kernel<AttentionGradientSums> finish({}, p.q.device());
      finish(1, p.heads, p.q_size, p.d, p.scale, p.dtype, sums, HeadArguments(dq)).expect_clean();
      expected.of_q(dq);
    }};

}  // namespace
}  // namespace imbrex::kernels
