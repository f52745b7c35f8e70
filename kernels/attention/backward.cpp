// SPDX-License-Identifier: Apache-2.0
#include "attention/configured_kernel.h"
#include "attention/forward_launch.h"
#include "attention/kv_arguments.h"
#include "imbrex/kernels/attention/custom_backward.h"
#include "imbrex/kernels/attention/gradient_all.h"
#include "imbrex/kernels/attention/gradient_rows.h"
#include "imbrex/kernels/attention/gradient_sums.h"
#include "imbrex/runtime/caller_line.h"
#include "kernel_of_device.h"

namespace imbrex {

BackwardAttentionCall::BackwardAttentionCall(const DeviceTensor& q, const DeviceTensor& k,
                                             const DeviceTensor& v, const DeviceTensor& o,
                                             const DeviceTensor& d_o, const DeviceTensor& dq,
                                             const DeviceTensor& dk, const DeviceTensor& dv,
                                             const AttentionOptions& options)
    : stream_(options.stream) {
  const AttentionCall call(
      "attention_backward",
      {{"q", q}, {"k", k}, {"v", v}, {"o", o}, {"d_o", d_o}, {"dq", dq}, {"dk", dk}, {"dv", dv}});
  call.check_tensors();
  device_ = q.device();
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

  const auto heads_of = [](const DeviceTensor& t) {
    const HeadArguments a(t);
    return Heads{a.address, a.batch, a.head, a.row};
  };
  const auto read = [&](const DeviceTensor& t) { return heads_of(reachable(t, true, stream_, held_)); };
  const auto written = [&](const DeviceTensor& t) {
    const DeviceTensor to = reachable(t, false, stream_, held_);
    if (to.address() != t.address()) copied_.emplace_back(to, t);
    return heads_of(to);
  };
  q_ = read(q), k_ = read(k), v_ = read(v), o_ = read(o), d_o_ = read(d_o);
  dq_ = written(dq), dk_ = written(dk), dv_ = written(dv);
  batches_ = s.batch, heads_ = s.heads, heads_kv_ = s.heads_kv, rows_ = s.rows, rows_kv_ = s.rows_kv;
  head_size_ = s.head_size, value_size_ = s.value_size, group_ = s.group();
  scale_ = attention_scale(options.scale, s.head_size);
  dtype_ = q.dtype();
  log_sum_ = options.log_sum_exp.address();
  const PackedArguments packed(options.q_begins, options.kv_begins, q.address());
  is_packed_ = packed.is_packed, sequences_ = packed.sequences;
  q_begins_ = packed.q_begin, kv_begins_ = packed.kv_begin;
  constexpr int64_t kPackedRows = kernels::AttentionGradientRows::kPackedRows;
  padded_ = is_packed_ ? (rows_ / kPackedRows + sequences_) * kPackedRows : (rows_ + 127) / 128 * 128;
  held_.push_back(Workspace::on(stream_, *device_, 4 * 2 * batches_ * heads_ * padded_));
  of_rows_ = held_.back().address();
}

bool BackwardAttentionCall::fills_by_turns() const {
  // Of blocks of 128 rows of K and V as many of a head begin together as BlockOfHead does not give to others, each a step of 64 rows
  // of Q and a seventh behind the one before it. That is to take less than some 6 % of the time, which is what the other
  // kernels lose by computing the scores twice.
  const int64_t heads = batches_ * heads_kv_, blocks = (rows_kv_ + 127) / 128,
                steps = group_ * ((rows_ + 63) / 64), multiprocessors = device_->multiprocessors(),
                bytes = rows_ * head_size_ * 8;
  int64_t together = 1;
  while (together < 64 && heads % (2 * together) == 0 && 2 * together * bytes <= int64_t{36} << 20)
    together *= 2;
  const int64_t behind = std::min(blocks, multiprocessors / together + 1);
  return together > 1 && 40 * behind * multiprocessors <= 2 * heads * blocks * steps;
}

LaunchReport BackwardAttentionCall::start() const {
  return kernel_of_device<kernels::AttentionGradientRows>(*device_).on(stream_)(
      batches_, heads_, rows_, padded_, value_size_, dtype_, o_, d_o_, log_sum_, of_rows_, is_packed_,
      sequences_, q_begins_, kv_begins_);
}

LaunchReport BackwardAttentionCall::finish(uint64_t sums) const {
  return kernel_of_device<kernels::AttentionGradientSums>(*device_).on(stream_)(
      batches_, heads_, rows_, head_size_, scale_, dtype_, sums, dq_);
}

void BackwardAttentionCall::deliver() const {
  for (const auto& [from, to] : copied_) DeviceTensor(to).copy_from(from, stream_);
}

LaunchReport attention_backward(const DeviceTensor& q, const DeviceTensor& k, const DeviceTensor& v,
                                const DeviceTensor& o, const DeviceTensor& d_o, const DeviceTensor& dq,
                                const DeviceTensor& dk, const DeviceTensor& dv,
                                const AttentionOptions& options, SourceLocation where) {
  const CallerLine caller(where);
  const BackwardAttentionCall call(q, k, v, o, d_o, dq, dk, dv, options);
  const ScoreArguments steps = score_arguments({"attention_backward", {{"q", q}, {"k", k}}}, options,
                                               {.heads = head_extent(q, 1)}, q.address());
  const int64_t larger = call.larger_size();
  // Where heads are small there are registers for three warp groups, and then tensor cores wait less for exponentials.
  const bool may_be_three = !call.is_packed() && !needs_registers(steps);
  const int of_kv_groups = may_be_three && larger <= 64 ? 3 : 2,
            of_q_groups = may_be_three && (larger <= 64 || larger == 96) ? 3 : 2;
  const bool in_order = options.deterministic && !steps.causal && call.fills_by_turns();
  if ((!options.deterministic || in_order) && larger > (in_order ? 96 : 64) && call.may_add() &&
      !needs_registers(steps)) {
    const kernels::WithScoreOptions<kernels::AttentionGradientAll> all{.in_order = in_order};
    auto& kernel = configured_kernel(q.device(), all, {in_order, 0, 0});
    return call.launch_adding([&](const auto& of) { return kernel.on(options.stream)(of, steps); }, in_order);
  }
  kernels::WithScoreOptions<kernels::AttentionGradientKv> of_kv{.consumers = of_kv_groups};
  if (of_kv_groups == 3) of_kv.stages = 4;
  if (needs_registers(steps) || (call.is_packed() && larger > 64)) of_kv.block_q = 32;
  kernels::WithScoreOptions<kernels::AttentionGradientQ> of_q{.consumers = of_q_groups, .overlaps = true};
  if (of_q_groups == 3) of_q.stages = 4;
  if (needs_registers(steps)) of_q.block_kv = 32;
  if (larger > 128) {
    of_q.one_value = true;
    of_q.stages = larger > 192 ? 2 : 3;
    // Of 64 columns of heads of other sizes, a few bytes a thread are spilled.
    if (!needs_registers(steps) && larger != 256 && (call.is_packed() || larger > 192)) of_q.block_kv = 48;
  }
  auto& kv_kernel = configured_kernel(q.device(), of_kv, {of_kv.block_q, of_kv.stages, of_kv_groups});
  auto& q_kernel = configured_kernel(
      q.device(), of_q, {of_q.block_kv, of_q.stages, of_q.one_value ? -of_q_groups : of_q_groups});
  kernels::WithScoreOptions<kernels::AttentionGradientKvLarge> of_large_kv;
  if (larger <= 192 && !needs_registers(steps)) of_large_kv.block_q = 64, of_large_kv.stages = 3;
  auto& large_kv_kernel = configured_kernel(q.device(), of_large_kv, {of_large_kv.block_q, 0, 0});
  return call.launch([&](const auto& of) { return kv_kernel.on(options.stream)(of, steps); },
                     [&](const auto& of) { return large_kv_kernel.on(options.stream)(of, steps); },
                     [&](const auto& of) { return q_kernel.on(options.stream)(of, steps); });
}

}  // namespace imbrex
