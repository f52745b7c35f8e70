// SPDX-License-Identifier: Apache-2.0
// Where the ranks of a bench run: on CUDA GPUs, or for a dry run, which needs none, on a virtual node, with small sizes,
// verified as ever and not timed.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "imbrex/core/error.h"
#include "imbrex/parallel.h"
#include "rank_timing.h"

namespace imbrex::parallel {

struct RankPlace {
  bool is_virtual = false;
  int ranks = 0;

  /// Of "4", so many GPUs; of "virtual:4", so many virtual ones; of "", all GPUs of this machine.
  static RankPlace of(const std::string& text) {
    const std::string prefix = "virtual:";
    RankPlace place{.is_virtual = text.starts_with(prefix), .ranks = Ranks::cuda_devices()};
    if (text.empty()) return place;
    const std::string number = place.is_virtual ? text.substr(prefix.size()) : text;
    size_t read = 0;
    try {
      place.ranks = std::stoi(number, &read);
    } catch (const std::logic_error&) {  // it is none, or beyond all of them
    }
    if (read == 0 || read != number.size() || place.ranks < 1)
      throw LaunchError(Diagnostic{{},
                                   fmt::format("'{}' is no number of ranks", text),
                                   {},
                                   "give that of the GPUs, or virtual:4 for a dry run on a virtual node"});
    return place;
  }

  Ranks where() const {
    return is_virtual ? Ranks::virtual_node(ranks, {.target = "sm_90a", .seed = 1}).patience(600)
                      : Ranks::cuda(ranks);
  }
  /// A size of a case; on a virtual node a small one.
  int64_t size(int64_t on_gpus, int64_t divisor) const {
    return is_virtual ? std::max<int64_t>(on_gpus / divisor, 1) : on_gpus;
  }
  RankTiming timing(int calls, int turns) const {
    return is_virtual ? RankTiming{1, 1, false} : RankTiming{calls, turns};
  }
};

}  // namespace imbrex::parallel
