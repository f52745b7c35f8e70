// SPDX-License-Identifier: Apache-2.0
// The steps on scores that the library's functions offer, and what launches pass for them.
#pragma once

#include <cstdint>
#include <tuple>

#include "imbrex/kernels/attention/score_steps.h"

namespace imbrex {

namespace kernels {
/// A kernel with the steps of which the library takes those that a call asks for.
template <template <class...> class Kernel>
using WithScoreOptions =
    Kernel<OptionalScore<CausalMask>, OptionalScore<WindowMask>, OptionalScore<PrefixMask>,
           OptionalScore<SoftCap>, OptionalScore<AlibiBias>, OptionalScore<AttentionSink>>;
}  // namespace kernels

/// What a launch passes for them, in that order.
struct ScoreArguments {
  bool causal = false, window = false, prefix = false, soft_cap = false, alibi = false, sink = false;
  int64_t left = 0, right = 0, length = 0, heads = 1;
  float cap = 0;
  uint64_t slopes = 0, sinks = 0;  ///< addresses; any where there are none
  auto arguments() const {
    return std::tie(causal, window, left, right, prefix, length, soft_cap, cap, alibi, slopes, heads, sink,
                    sinks, heads);
  }
};

}  // namespace imbrex
