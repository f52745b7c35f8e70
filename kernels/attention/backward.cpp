// SPDX-License-Identifier: Apache-2.0
#include "attention/configured_kernel.h"
#include "attention/forward_launch.h"
#include "attention/kv_arguments.h"
#include "imbrex/kernels/attention/gradient_kv.h"
#include "imbrex/kernels/attention/gradient_q.h"
#include "imbrex/kernels/attention/gradient_rows.h"
#include "imbrex/runtime/caller_line.h"
#include "kernel_of_device.h"

namespace imbrex {

using kernels::KvGradients;

LaunchReport attention_backward(const DeviceTensor& q, const DeviceTensor& k, const DeviceTensor& v,
                                const DeviceTensor& o, const DeviceTensor& d_o, const DeviceTensor& dq,
                                const DeviceTensor& dk, const DeviceTensor& dv,
                                const AttentionOptions& options, SourceLocation where) {
  const CallerLine caller(where);
  const AttentionCall call(
      "attention_backward",
      {{"q", q}, {"k", k}, {"v", v}, {"o", o}, {"d_o", d_o}, {"dq", dq}, {"dk", dk}, {"dv", dv}});
  call.check_tensors();
  const AttentionSizes s = attention_sizes(call, q, k, v);
  std::vector<int64_t> shape = q.shape();
  shape.back() = s.value_size;
  call.check_shape("o", o, shape, "o is like q, with rows as long as v's");
  call.check_shape("d_o", d_o, shape, "d_o is what o is");
  call.check_shape("dq", dq, q.shape(), "dq is what q is");
  call.check_shape("dk", dk, k.shape(), "dk is what k is");
  call.check_shape("dv", dv, v.shape(), "dv is what v is");
  call.check_written("dq", dq), call.check_written("dk", dk), call.check_written("dv", dv);
  shape.pop_back();
  if (options.log_sum_exp.is_null())
    call.refuse("log_sum_exp is null", "let attention() write it, and pass it in the options");
  call.check_extra("log_sum_exp", options.log_sum_exp, float32, shape);
  check_packed(call, s, options.q_begins, options.kv_begins);
  const PackedArguments packed(options.q_begins, options.kv_begins, q.address());
  const ScoreArguments steps = score_arguments(call, options, s, q.address());

  std::vector<Workspace> held;
  const auto read = [&](const DeviceTensor& t) { return reachable(t, true, options.stream, held); };
  const auto written = [&](const DeviceTensor& t) { return reachable(t, false, options.stream, held); };
  const DeviceTensor to_q = written(dq), to_k = written(dk), to_v = written(dv), from_do = read(d_o);
  const HeadArguments qs(read(q)), ks(read(k)), vs(read(v)), os(read(o)), dos(from_do), dqs(to_q), dks(to_k),
      dvs(to_v);
  const float scale = attention_scale(options.scale, s.head_size);
  constexpr int64_t kPackedRows = kernels::AttentionGradientRows::kPackedRows;
  const int64_t padded =
      packed.is_packed ? (s.rows / kPackedRows + packed.sequences) * kPackedRows : (s.rows + 127) / 128 * 128;
  held.push_back(Workspace::on(options.stream, q.device(), 4 * 2 * s.batch * s.heads * padded));
  const uint64_t rows = held.back().address();

  const Device& device = q.device();
  LaunchReport report;  // the first that has findings, else the last
  const auto note = [&](LaunchReport of_launch) {
    if (report.clean()) report = std::move(of_launch);
  };
  note(kernel_of_device<kernels::AttentionGradientRows>(device).on(options.stream)(
      s.batch, s.heads, s.rows, padded, s.value_size, q.dtype(), os, dos, options.log_sum_exp, rows, packed));

  using OfKv = kernels::WithScoreOptions<kernels::AttentionGradientKv>;
  using OfQ = kernels::WithScoreOptions<kernels::AttentionGradientQ>;
  const int64_t larger = std::max(s.head_size, s.value_size);
  OfKv of_kv;
  if (larger > 128) of_kv.stages = 2;
  if (larger <= 64 && steps.causal && !packed.is_packed) of_kv = {.block_q = 128, .stages = 2};
  if (larger > 192 || needs_registers(steps) || (packed.is_packed && larger > 64)) of_kv.block_q = 32;
  auto& kv_kernel = configured_kernel(device, of_kv, {of_kv.block_q, of_kv.stages, 0});
  const auto launch_kv = [&](KvGradients which) {
    note(kv_kernel.on(options.stream)(s.batch, s.heads_kv, s.rows, padded, s.rows_kv, s.head_size,
                                      s.value_size, s.group(), scale, q.dtype(), which, qs, ks, vs, dos, rows,
                                      dks, dvs, packed, steps));
  };
  if (larger <= 128) {
    launch_kv(KvGradients::kBoth);
  } else {
    launch_kv(KvGradients::kOnlyK);
    launch_kv(KvGradients::kOnlyV);
  }
  OfQ of_q;
  if (larger > 128) of_q.stages = 2;
  if (larger > 192 || needs_registers(steps)) of_q.block_kv = 32;
  note(configured_kernel(device, of_q, {of_q.block_kv, of_q.stages, 0})
           .on(options.stream)(s.batch, s.heads, s.rows, padded, s.rows_kv, s.head_size, s.value_size,
                               s.group(), scale, q.dtype(), qs, ks, vs, dos, rows, dqs, packed, steps));
  const auto deliver = [&](const DeviceTensor& from, const DeviceTensor& to) {
    if (from.address() != to.address()) DeviceTensor(to).copy_from(from, options.stream);
  };
  deliver(to_q, dq), deliver(to_k, dk), deliver(to_v, dv);
  return report;
}

}  // namespace imbrex
