// SPDX-License-Identifier: Apache-2.0
// Schedules that chance alone hardly ever makes: for a whole run one warp, one CTA or the asynchronous work of some
// instructions is late at everything, or one warp is early.
//
// What is held back goes on only where nothing else can, or after a while, so that loops which poll do not wait for
// ever. Drawn once for each cluster, from its random numbers: a part of the seeds has an adversary, the others none.
#pragma once

#include <cstdint>

#include "vgpu/machine/random.h"

namespace imbrex::vgpu {

class AsyncOp;
class Warp;

class Adversary {
 public:
  /// For a cluster of `ctas` CTAs of `warps` warps each, which starts at `clock`. None for a plain `random`.
  Adversary(Random& random, uint64_t ctas, uint64_t warps, uint64_t clock);

  /// Does the warp, or an operation, have to wait at this time of the cluster's clock?
  bool holds_back(const Warp& warp, uint64_t clock) const { return !lets_go(clock) && is_chosen(warp); }
  bool holds_back(const AsyncOp& op, uint64_t clock) const { return !lets_go(clock) && is_chosen(op); }
  /// What is late stops often, so that others overtake it between any two instructions.
  bool stops_often(const Warp& warp) const {
    return (mode_ == Mode::kLateWarp || mode_ == Mode::kLateCta) && is_chosen(warp);
  }
  /// It has got on, up to that time: if it is one of those held back, it is again.
  template <class Runner>
  void has_run(const Runner& runner, uint64_t clock) {
    if (mode_ == Mode::kNone || !is_chosen(runner)) return;
    last_run_ = clock;
    relented_ = false;
  }
  /// Nothing else can run. True if anything may now that was held back.
  bool relent() {
    if (mode_ == Mode::kNone || relented_) return false;
    return relented_ = true;
  }

 private:
  enum class Mode : uint8_t { kNone, kLateWarp, kLateCta, kLateWork, kEarlyWarp };
  bool lets_go(uint64_t clock) const {
    return mode_ == Mode::kNone || relented_ || clock - last_run_ > patience_;
  }
  bool is_chosen(const Warp& warp) const;
  bool is_chosen(const AsyncOp& op) const;

  Mode mode_ = Mode::kNone;
  bool relented_ = false;
  uint64_t warps_;       // of a CTA
  uint64_t chosen_ = 0;  // warp of the cluster, CTA, or what instructions are told apart by
  uint64_t patience_ = 0, last_run_ = 0;
};

}  // namespace imbrex::vgpu
