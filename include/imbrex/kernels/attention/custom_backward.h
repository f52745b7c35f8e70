// SPDX-License-Identifier: Apache-2.0
// The gradients of attention with masks and score modifications of one's own (score_steps.h), called on tensors.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "imbrex/kernels/attention.h"
#include "imbrex/kernels/attention/custom_attention.h"
#include "imbrex/kernels/attention/gradient_kv.h"
#include "imbrex/kernels/attention/gradient_kv_large.h"
#include "imbrex/kernels/attention/gradient_q.h"
#include "imbrex/runtime/device_tensor.h"
#include "imbrex/runtime/kernel.h"
#include "imbrex/runtime/workspace.h"

namespace imbrex {

/// A call of attention_backward(): what its launches are passed in front of the steps' arguments. Memory that they need is the
/// stream's until its end.
class BackwardAttentionCall {
 public:
  /// LaunchError names what does not fit. The options' masks and modifications are not looked at.
  BackwardAttentionCall(const DeviceTensor& q, const DeviceTensor& k, const DeviceTensor& v,
                        const DeviceTensor& o, const DeviceTensor& d_o, const DeviceTensor& dq,
                        const DeviceTensor& dk, const DeviceTensor& dv, const AttentionOptions& options);

  int64_t larger_size() const { return std::max(head_size_, value_size_); }
  bool is_packed() const { return is_packed_; }

  /// All launches: `of_kv(arguments)` launches kernels::AttentionGradientKv, `of_large_kv(arguments)`, for heads of more than 128,
  /// kernels::AttentionGradientKvLarge, `of_q(arguments)` kernels::AttentionGradientQ. Returns the first report that has findings,
  /// else the last.
  template <class LaunchOfKv, class LaunchOfLargeKv, class LaunchOfQ>
  LaunchReport launch(const LaunchOfKv& of_kv, const LaunchOfLargeKv& of_large_kv,
                      const LaunchOfQ& of_q) const {
    LaunchReport report = start();
    const auto note = [&](LaunchReport of_launch) {
      if (report.clean()) report = std::move(of_launch);
    };
    if (larger_size() <= 128)
      note(of_kv(OfKv{*this}));
    else
      note(of_large_kv(OfKv{*this}));
    note(of_q(OfQ{*this}));
    deliver();
    return report;
  }

  /// Whether kernels::AttentionGradientAll takes these heads.
  bool may_add() const {
    return head_size_ == value_size_ && head_size_ % 32 == 0 && head_size_ <= 128 && !is_packed_;
  }
  /// Whether it takes long enough for kernels::AttentionGradientAll `in_order`, whose blocks of a head begin one behind the other.
  bool fills_by_turns() const;
  /// The same in one launch beside those before and after: `of_all(arguments)` launches kernels::AttentionGradientAll, `in_order`
  /// or not.
  template <class LaunchOfAll>
  LaunchReport launch_adding(const LaunchOfAll& of_all, bool in_order) const {
    using Contents = Workspace::Contents;
    const int64_t blocks = batches_ * heads_ * ((rows_ + 63) / 64);
    const Workspace sums = Workspace::on(stream_, *device_, 4 * blocks * 64 * head_size_,
                                         in_order ? Contents::kUndefined : Contents::kZero),
                    turns = Workspace::on(stream_, *device_, 4 * (blocks + 1), Contents::kLeftZero);
    LaunchReport report = start();
    const auto note = [&](LaunchReport of_launch) {
      if (report.clean()) report = std::move(of_launch);
    };
    note(of_all(OfAll{*this, sums.address(), turns.address()}));
    note(finish(sums.address()));
    deliver();
    return report;
  }

 private:
  struct OfKv {
    const BackwardAttentionCall& c;
    auto arguments() const {
      return std::tie(c.batches_, c.heads_kv_, c.rows_, c.padded_, c.rows_kv_, c.head_size_, c.value_size_,
                      c.group_, c.scale_, c.dtype_, c.q_, c.k_, c.v_, c.d_o_, c.of_rows_, c.dk_, c.dv_,
                      c.is_packed_, c.sequences_, c.q_begins_, c.kv_begins_);
    }
  };
  struct OfQ {
    const BackwardAttentionCall& c;
    auto arguments() const {
      return std::tie(c.batches_, c.heads_, c.rows_, c.padded_, c.rows_kv_, c.head_size_, c.value_size_,
                      c.group_, c.scale_, c.dtype_, c.q_, c.k_, c.v_, c.d_o_, c.of_rows_, c.dq_, c.is_packed_,
                      c.sequences_, c.q_begins_, c.kv_begins_);
    }
  };
  struct OfAll {
    const BackwardAttentionCall& c;
    uint64_t sums, turns;
    auto arguments() const {
      return std::tie(c.batches_, c.heads_kv_, c.rows_, c.padded_, c.rows_kv_, c.head_size_, c.group_,
                      c.scale_, c.dtype_, c.q_, c.k_, c.v_, c.d_o_, c.of_rows_, sums, turns, c.dk_, c.dv_);
    }
  };
  /// What the others need of each row of Q.
  LaunchReport start() const;
  /// dQ from its float32 sums.
  LaunchReport finish(uint64_t sums) const;
  /// Copies to gradients that TMA does not reach.
  void deliver() const;

  using Heads = ForwardAttentionArguments::Heads;
  int64_t batches_, heads_, heads_kv_, rows_, rows_kv_, padded_, head_size_, value_size_, group_;
  float scale_;
  DataType dtype_;
  Heads q_, k_, v_, o_, d_o_, dq_, dk_, dv_;
  uint64_t of_rows_, log_sum_, q_begins_, kv_begins_;
  bool is_packed_;
  int64_t sequences_;
  std::optional<Device> device_;
  Stream stream_;
  std::vector<std::pair<DeviceTensor, DeviceTensor>> copied_;  ///< from, to
  std::vector<Workspace> held_;
};

/// Gradients of attention with these steps on a device: an object that is called like a function. It compiles on the first call
/// of each type, head size and scale. A step with change() needs slope() too, unless its derivative by the score is 1; what
/// rows() says lets blocks of rows be skipped.
///
///   CustomAttention<MyCap> attend(device);
///   CustomAttentionBackward<MyCap> back(device);
///   attend(q, k, v, o, {.log_sum_exp = sums}, cap);
///   back(q, k, v, o, d_o, dq, dk, dv, {.log_sum_exp = sums}, cap);
template <class... Steps>
class CustomAttentionBackward {
 public:
  /// Rows of Q, and columns, that a step of the kernels takes: fewer where steps need registers (CompileError tells of spills).
  struct Tiles {
    int block_q = 32, block_kv = 32;
  };
  explicit CustomAttentionBackward(const Device& device, const Tiles& tiles = {})
      : of_kv_({.block_q = tiles.block_q}, device),
        of_large_kv_({.block_q = tiles.block_q, .stages = std::clamp(128 / tiles.block_q, 2, 4)}, device),
        of_q_({.block_kv = tiles.block_kv, .overlaps = true}, device),
        of_large_q_({.block_kv = tiles.block_kv, .stages = 2, .one_value = true, .overlaps = true}, device) {}

  /// attention_backward() with the steps in place of the options' masks and modifications, launched without waiting.
  /// `arguments`: those of the steps, in order.
  template <class... Arguments>
  LaunchReport operator()(const DeviceTensor& q, const DeviceTensor& k, const DeviceTensor& v,
                          const DeviceTensor& o, const DeviceTensor& d_o, const DeviceTensor& dq,
                          const DeviceTensor& dk, const DeviceTensor& dv, const AttentionOptions& options,
                          const Arguments&... arguments) {
    const BackwardAttentionCall call(q, k, v, o, d_o, dq, dk, dv, options);
    auto& of_q = call.larger_size() <= 128 ? of_q_ : of_large_q_;
    return call.launch([&](const auto& of) { return of_kv_.on(options.stream)(of, arguments...); },
                       [&](const auto& of) { return of_large_kv_.on(options.stream)(of, arguments...); },
                       [&](const auto& of) { return of_q.on(options.stream)(of, arguments...); });
  }

 private:
  using OfQ = kernels::AttentionGradientQ<Steps...>;
  Kernel<kernels::AttentionGradientKv<Steps...>> of_kv_;
  Kernel<kernels::AttentionGradientKvLarge<Steps...>> of_large_kv_;
  Kernel<OfQ> of_q_, of_large_q_;
};

}  // namespace imbrex
