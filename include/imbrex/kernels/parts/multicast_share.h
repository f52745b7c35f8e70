// SPDX-License-Identifier: Apache-2.0
// Loads that the CTAs of a cluster divide among them: each loads a share of what all need, for all (multicast).
#pragma once

#include <vector>

#include "imbrex/lang.h"

namespace imbrex::kernels {

/// CTAs of a cluster that need the same tiles of an operand: `count` of them, with ranks r, r + stride, ...
struct SharingCtas {
  int count;
  int stride = 1;
  int cluster_ctas = 0;  ///< CTAs of the cluster; 0: these are all
};

/// A CTA's share of the loads of an operand's stages, [rows, k]: some of the rows or, where memory has k
/// first, some of k, so that every share consists of whole lines of memory.
class MulticastShare {
 public:
  /// `index`: which of the sharing CTAs this one is; `rank`: its rank in the cluster.
  MulticastShare(bool k_first, int rows, int k, const SharingCtas& ctas, const Int32& rank,
                 const Int32& index, SourceLocation where = SourceLocation::current())
      : ctas_(ctas), rows_(k_first ? rows : rows / ctas.count), k_(k_first ? k / ctas.count : k) {
    require({rows_ % 8 == 0 && k_ % 8 == 0, where},
            "{} rows of {} are divided among {} CTAs: a share is not a multiple of 8", rows, k, ctas.count);
    if (ctas.count == 1) return;
    (k_first ? first_k_ : first_row_) = ScalarArg(index * (k_first ? k_ : rows_));
    first_rank_ = ScalarArg(rank - index * ctas.stride);
  }

  /// Starts loading the share of the tile at `row` and `k` of `from` into the same place of `stage` in every
  /// sharing CTA, whose barriers at the place of `full` get its bytes. One warp or one thread executes it.
  void load(const GlobalTensor& from, const SharedTensor& stage, const ScalarArg& row, const ScalarArg& k,
            const Barrier& full, tma::CachePolicy policy = tma::CachePolicy::kDefault,
            SourceLocation where = SourceLocation::current()) const {
    const auto start = [&](int mask) {
      tma::global_to_shared(from, stage.slice({first_row_, first_k_}, {rows_, k_}, where),
                            {row + first_row_, k + first_k_}, full,
                            {.multicast_mask = mask, .cache_policy = policy}, where);
    };
    if (ctas_.count == 1) return start(0);
    // The mask is a number in the instruction: there is a copy for each set of sharing CTAs.
    const std::vector<int> sets = first_ranks();
    if (sets.size() == 1) return start(mask(0));
    for (int first : sets)
      if (auto here = when(first_rank_ == first, where)) start(mask(first));
  }

 private:
  /// The first rank of each set of sharing CTAs.
  std::vector<int> first_ranks() const {
    std::vector<int> ranks{0};
    for (int i = 1; i < ctas_.cluster_ctas; ++i)
      if (i / ctas_.stride % ctas_.count == 0) ranks.push_back(i);
    return ranks;
  }
  int mask(int first) const {
    int mask = 0;
    for (int i = 0; i < ctas_.count; ++i) mask |= 1 << (first + i * ctas_.stride);
    return mask;
  }

  SharingCtas ctas_;
  int rows_, k_;                                            // of a share
  ScalarArg first_row_ = 0, first_k_ = 0, first_rank_ = 0;  // of this CTA's
};

/// Signals a stage's barrier in every CTA that loads a share of the stage for this one: in a cluster of `across` CTAs side
/// by side, those of the same row and of the same column. `rank` is this CTA's, in column `column` and row `row`. One
/// thread executes it.
inline void arrive_at_loaders(const Barrier& barrier, int across, int down, const Int32& rank,
                              const Int32& column, const Int32& row,
                              SourceLocation where = SourceLocation::current()) {
  const auto arrive = [&](const ScalarArg& cta) {
    mbarrier::arrive(remote_barrier(barrier, cta), {.sem = Sem::kRelaxed}, where);
  };
  for (int i = 0; i < across; ++i) arrive(rank - column + i);
  for (int i = 1; i < down; ++i)
    arrive(rank - row * across + select(row + i < down, row + i, row + i - down) * across);
}

}  // namespace imbrex::kernels
