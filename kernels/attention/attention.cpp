// SPDX-License-Identifier: Apache-2.0
#include "imbrex/kernels/attention.h"

#include <fmt/format.h>

#include "attention/configured_kernel.h"
#include "attention/forward_launch.h"
#include "attention/kv_arguments.h"
#include "imbrex/kernels/attention/blackwell_forward.h"
#include "imbrex/runtime/caller_line.h"
#include "kernel_of_device.h"

namespace imbrex {
namespace {

using Forward = kernels::WithScoreOptions<kernels::ForwardAttention>;
using Blackwell = kernels::WithScoreOptions<kernels::BlackwellAttention>;

/// A checked call.
struct Checked {
  AttentionCall call;
  AttentionSizes s;
  ScoreArguments steps;

  Checked(const DeviceTensor& q, const DeviceTensor& k, const DeviceTensor& v, const DeviceTensor& o,
          const AttentionOptions& options)
      : call("attention", {{"q", q}, {"k", k}, {"v", v}, {"o", o}}),
        s((call.check_tensors(AttentionCall::Float8::kAllButTheLast, true), attention_sizes(call, q, k, v))) {
    std::vector<int64_t> shape = q.shape();
    shape.back() = s.value_size;
    if (o.shape() != shape)
      call.refuse(s.value_size == s.head_size ? "o has another shape than q"
                                              : "o has another shape than q with v's last extent",
                  "o is what q is, with rows as long as v's");
    call.check_written("o", o);
    shape.pop_back();
    call.check_extra("log_sum_exp", options.log_sum_exp, float32, shape);
    check_packed(call, s, options.q_begins, options.kv_begins);
    if (is_blackwell(q.device())) {
      call.check_blackwell(k, s.head_size, s.value_size);
      if (!options.q_begins.is_null())
        call.refuse("packed sequences on a device of target sm_100a",
                    "they need one of sm_90a; call for each");
    }
    check_scales(q.dtype() == float8_e4m3, q.shape().size() == 4, options);
    steps = score_arguments(call, options, s, q.address());
  }

 private:
  void check_scales(bool is_float8, bool has_batch, const AttentionOptions& options) const {
    if (is_float8 && s.head_size % 32 != 0)
      call.refuse(fmt::format("head size {} of float8 is not a multiple of 32", s.head_size),
                  "pad the heads with zeros");
    const bool has_q = !options.q_scales.is_null(), has_k = !options.k_scales.is_null(),
               has_v = !options.v_scales.is_null();
    if (has_q != has_k || has_q != has_v)
      call.refuse("some of q_scales, k_scales and v_scales, and not all", "give all three, or none");
    if (has_q && !is_float8)
      call.refuse("scales of tensors that are not float8", "leave them out, and use options.scale");
    const bool are_of_rows = has_q && options.q_scales.shape().size() > (has_batch ? 2 : 1);
    const int64_t sequences = options.q_begins.is_null() ? 0 : options.q_begins.shape()[0] - 1;
    const auto of = [&](int64_t heads, int64_t rows) {
      std::vector<int64_t> shape{heads};
      if (has_batch) shape.insert(shape.begin(), s.batch);
      constexpr int64_t kRows = kernels::kScaledRows;
      if (are_of_rows) shape.push_back(sequences > 0 ? rows / kRows + sequences : (rows + kRows - 1) / kRows);
      return shape;
    };
    call.check_extra("q_scales", options.q_scales, float32, of(s.heads, s.rows));
    call.check_extra("k_scales", options.k_scales, float32, of(s.heads_kv, s.rows_kv));
    call.check_extra("v_scales", options.v_scales, float32, of(s.heads_kv, s.rows_kv));
  }
};

/// V of float8 as the kernel takes it, in memory of the stream's.
struct TransposedValues {
  TransposedValues(const AttentionSizes& s, const DeviceTensor& v, const AttentionOptions& options,
                   std::vector<Workspace>& held)
      : sizes(s), packed(options.q_begins, options.kv_begins, v.address()) {
    const std::vector<int64_t> shape = transposed_shape(s, packed);
    held.push_back(Workspace::on(options.stream, v.device(), shape[0] * shape[1] * shape[2] * shape[3]));
    tensor = DeviceTensor::view(v.device(), held.back().address(), v.dtype(), shape);
  }
  LaunchReport launch(const DeviceTensor& v, const Stream& stream) const {
    return kernel(v).on(stream)(sizes.batch, sizes.heads_kv, sizes.rows_kv,
                                static_cast<int>(sizes.value_size), HeadArguments(v), tensor, packed);
  }
  void prepare(const DeviceTensor& v) const {
    kernel(v).prepare(sizes.batch, sizes.heads_kv, sizes.rows_kv, static_cast<int>(sizes.value_size),
                      HeadArguments(v), tensor, packed);
  }
  AttentionSizes sizes;
  PackedArguments packed;
  DeviceTensor tensor;

 private:
  static Kernel<kernels::TransposeValues>& kernel(const DeviceTensor& v) {
    return kernel_of_device<kernels::TransposeValues>(v.device());
  }
};

/// `launch(kernel, arguments...)` with what a call launches.
template <class Call>
auto call_forward(const Checked& c, const DeviceTensor& q, const DeviceTensor& k, const DeviceTensor& v,
                  const DeviceTensor& o, const AttentionOptions& options, const Call& call) {
  const AttentionSizes& s = c.s;
  const Device& device = q.device();
  const bool is_float8 = q.dtype() == float8_e4m3;
  const bool wants_log_sum = !options.log_sum_exp.is_null();
  const uint64_t log_sum = wants_log_sum ? options.log_sum_exp.address() : q.address();
  const float scale = attention_scale(options.scale, s.head_size);
  const HeadArguments qs(q), ks(k), vs(v), os(o);
  if (is_blackwell(device)) {
    Blackwell tiles;
    if (s.head_size % tiles.slice != 0) tiles.slice = 16;
    return call(configured_kernel(device, tiles, {tiles.slice, 0, 0}), s.batch, s.heads, s.rows, s.rows_kv,
                s.head_size, s.group(), scale, q.dtype(), qs, ks, vs, os, wants_log_sum, log_sum, c.steps);
  }
  const size_t heads_rank = q.shape().size() - 2;
  const Float8Arguments scales(s.heads, options.q_scales, options.k_scales, options.v_scales, q.address(),
                               heads_rank);
  Forward tiles = forward_tiles<Forward>(s, c.steps, device.multiprocessors(), is_float8,
                                         !options.q_begins.is_null(), wants_log_sum);
  if (scales.of == kernels::Float8ScaleOf::kRows) use_blocks_of_scaled_rows(tiles, s, c.steps);
  const bool long_first = c.steps.causal || c.steps.prefix;
  return call(configured_kernel(device, tiles,
                                {tiles.block_kv, tiles.stages,
                                 4 * tiles.consumers + 2 * tiles.takes_turns + tiles.q_stages - 1}),
              s.batch, s.heads, s.rows, s.rows_kv, s.head_size, s.value_size, s.group(), scale, q.dtype(),
              o.dtype(), qs, ks, vs, os, wants_log_sum, log_sum, long_first, heads_of_section(s),
              PackedArguments(options.q_begins, options.kv_begins, q.address()), scales, c.steps);
}

}  // namespace

LaunchReport attention(const DeviceTensor& q, const DeviceTensor& k, const DeviceTensor& v,
                       const DeviceTensor& o, const AttentionOptions& options, SourceLocation where) {
  const CallerLine caller(where);
  const Checked checked(q, k, v, o, options);
  std::vector<Workspace> copies;  // given back when the launch and the copy of its result are on the stream
  const auto read = [&](const DeviceTensor& t) { return reachable(t, true, options.stream, copies); };
  const DeviceTensor to = reachable(o, false, options.stream, copies);
  DeviceTensor values = read(v);
  if (q.dtype() == float8_e4m3) {
    const TransposedValues transposed(checked.s, values, options, copies);
    LaunchReport report = transposed.launch(values, options.stream);
    if (!report.clean()) return report;
    values = transposed.tensor;
  }
  LaunchReport report = call_forward(
      checked, read(q), read(k), values, to, options,
      [&](auto& kernel, const auto&... arguments) { return kernel.on(options.stream)(arguments...); });
  if (to.address() != o.address()) DeviceTensor(o).copy_from(to, options.stream);
  return report;
}

void prepare_attention(const DeviceTensor& q, const DeviceTensor& k, const DeviceTensor& v,
                       const DeviceTensor& o, const AttentionOptions& options) {
  const Checked checked(q, k, v, o, options);
  std::vector<Workspace> copies;
  const auto like = [&](const DeviceTensor& t) { return reachable(t, false, options.stream, copies); };
  DeviceTensor values = like(v);
  if (q.dtype() == float8_e4m3) {
    const TransposedValues transposed(checked.s, values, options, copies);
    transposed.prepare(values);
    values = transposed.tensor;
  }
  call_forward(checked, like(q), like(k), values, like(o), options,
               [](auto& kernel, const auto&... arguments) { kernel.prepare(arguments...); });
}

}  // namespace imbrex
