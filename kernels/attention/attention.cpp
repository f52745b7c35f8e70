// SPDX-License-Identifier: Apache-2.0
#include "imbrex/kernels/attention.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>
#include <vector>

#include "attention/kv_arguments.h"
#include "imbrex/core/error.h"
#include "imbrex/runtime/caller_line.h"
#include "imbrex/runtime/registry.h"
#include "kernel_of_device.h"
#include "scratch_like.h"

namespace imbrex {
namespace {

/// One of the four tensors of a call.
struct Named {
  const char* name;
  const DeviceTensor& tensor;
};

[[noreturn]] void refuse(const std::string& message, const std::vector<Named>& tensors,
                         const std::string& help) {
  Diagnostic told{{}, "attention: " + message, {}, help};
  for (const Named& t : tensors)
    told.facts.push_back(fmt::format("{}  {} [{}] with strides [{}]", t.name, t.tensor.dtype().name(),
                                     fmt::join(t.tensor.shape(), ", "), fmt::join(t.tensor.strides(), ", ")));
  throw LaunchError(std::move(told));
}

struct Sizes {
  int64_t batch, heads, heads_kv, rows, rows_kv, head_size;
};

Sizes check(const DeviceTensor& q, const DeviceTensor& k, const DeviceTensor& v, const DeviceTensor& o) {
  const std::vector<Named> all{{"q", q}, {"k", k}, {"v", v}, {"o", o}};
  for (const Named& t : all) {
    if (t.tensor.is_null() || t.tensor.address() == 0)
      refuse(fmt::format("{} is null or released", t.name), {},
             "make it before the call, and release it after");
    if (&t.tensor.device().backend() != &q.device().backend())
      refuse(fmt::format("{} is on '{}', q on '{}'", t.name, t.tensor.device().name(), q.device().name()),
             all, "copy it to q's device");
    if (t.tensor.dtype() != q.dtype() || (q.dtype() != float16 && q.dtype() != bfloat16))
      refuse(fmt::format("{} is {}; all are float16, or all bfloat16", t.name, t.tensor.dtype().name()), all,
             "convert it");
    const size_t rank = t.tensor.shape().size();
    if (rank != q.shape().size() || (rank != 3 && rank != 4))
      refuse(fmt::format("{} has {} dimensions", t.name, rank), all,
             "all have three, [heads, rows, head size], or four, with the batch first");
    for (int64_t size : t.tensor.shape())
      if (size < 1) refuse(fmt::format("{} has an extent of {}", t.name, size), all, "leave the call out");
  }
  const Sizes s{head_extent(q, 0), head_extent(q, 1), head_extent(k, 1), head_extent(q, 2), head_extent(k, 2), head_extent(q, 3)};
  if (o.shape() != q.shape()) refuse("o has another shape than q", all, "o is what q is");
  if (v.shape() != k.shape()) refuse("v has another shape than k", all, "v is what k is");
  if (head_extent(k, 0) != s.batch || head_extent(k, 3) != s.head_size)
    refuse("k has another batch or head size than q", all, "k is [batch, kv heads, kv rows, head size]");
  if (s.heads % s.heads_kv != 0)
    refuse(fmt::format("{} heads of q do not share {} of k and v evenly", s.heads, s.heads_kv), all,
           "heads of q are a multiple of those of k");
  if (s.head_size % 16 != 0 || s.head_size > 128)
    refuse(fmt::format("head size {} is not a multiple of 16 of at most 128", s.head_size), all,
           "pad the heads with zeros");
  if (s.heads > 65535 || s.batch > 65535)
    refuse(fmt::format("{} heads of {} batches; at most 65535 of each", s.heads, s.batch), all,
           "divide the call");
  if (o.may_overlap()) refuse("elements of o share memory", all, "write to a tensor without strides of 0");
  if (!q.device().can_run("sm_90a"))
    refuse(fmt::format("no kernel for {} ({})", q.device().name(), q.device().target()), all,
           "it runs on devices of target sm_90a");
  return s;
}

/// Whether TMA reaches the tensor as it lies.
bool has_tma_rows(const DeviceTensor& t) {
  const auto is_multiple = [&](int64_t elements) { return elements * t.dtype().bytes() % 16 == 0; };
  return t.address() % 16 == 0 && head_stride(t, 3) == 1 && is_multiple(head_stride(t, 0)) &&
         is_multiple(head_stride(t, 1)) && is_multiple(head_stride(t, 2));
}

/// `launch(kernel, arguments...)` with what a call launches.
template <class Call>
auto call_attention(const DeviceTensor& q, const DeviceTensor& k, const DeviceTensor& v,
                    const DeviceTensor& o, const Sizes& s, const AttentionOptions& options,
                    const Call& call) {
  const float scale = options.scale != 0 ? options.scale : 1 / std::sqrt(static_cast<float>(s.head_size));
  const int64_t group = s.heads / s.heads_kv;
  const bool is_dense = q.is_dense() && k.is_dense() && v.is_dense() && o.is_dense();
  if (is_dense && s.batch * s.heads <= 65535)
    return call(kernel_of_device<kernels::Attention>(q.device()), s.batch * s.heads, s.rows, s.rows_kv,
                s.head_size, group, options.causal, scale, q.dtype(), q.address(), k.address(), v.address(),
                o.address());
  const HeadArguments qs(q), ks(k), vs(v), os(o);
  return call(kernel_of_device<kernels::StridedAttention>(q.device()), s.batch, s.heads, s.rows, s.rows_kv,
              s.head_size, group, options.causal, scale, q.dtype(), qs, ks, vs, os);
}

}  // namespace

LaunchReport attention(const DeviceTensor& q, const DeviceTensor& k, const DeviceTensor& v,
                       const DeviceTensor& o, const AttentionOptions& options, SourceLocation where) {
  const CallerLine caller(where);
  const Sizes s = check(q, k, v, o);
  std::vector<Workspace> copies;  // given back when the launch and the copy of its result are on the stream
  const auto reachable = [&](const DeviceTensor& t, bool is_read) {
    if (has_tma_rows(t)) return t;
    DeviceTensor copy = scratch_like(t, options.stream, copies);
    if (is_read) copy.copy_from(t, options.stream);
    return copy;
  };
  const DeviceTensor to = reachable(o, false);
  const auto launch = [&](auto& kernel, const auto&... arguments) {
    return kernel.on(options.stream)(arguments...);
  };
  LaunchReport report =
      call_attention(reachable(q, true), reachable(k, true), reachable(v, true), to, s, options, launch);
  if (to.address() != o.address()) DeviceTensor(o).copy_from(to, options.stream);
  return report;
}

void prepare_attention(const DeviceTensor& q, const DeviceTensor& k, const DeviceTensor& v,
                       const DeviceTensor& o, const AttentionOptions& options) {
  const Sizes s = check(q, k, v, o);
  std::vector<Workspace> copies;
  const auto reachable = [&](const DeviceTensor& t) {
    return has_tma_rows(t) ? t : scratch_like(t, options.stream, copies);
  };
  call_attention(reachable(q), reachable(k), reachable(v), reachable(o), s, options,
                 [](auto& kernel, const auto&... arguments) { kernel.prepare(arguments...); });
}

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
