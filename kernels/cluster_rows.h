// SPDX-License-Identifier: Apache-2.0
// What the CTAs of a cluster know of the same rows, each of columns of its own, through distributed shared
// memory.
#pragma once

#include <vector>

#include "imbrex/imbrex.h"

namespace imbrex::kernels {

/// Each CTA gives all of them, itself included, a few numbers a row, [rows, 1] float32. Everybody then reads
/// them in the same order, so that all come to the same result. Once a launch.
class ClusterRows {
 public:
  /// In each of `ctas` CTAs, this one of rank `rank`, `groups` warp groups have `rows` rows with `parts`
  /// numbers each. The whole CTA executes it; usable after the next cluster_sync(), and no CTA may end before
  /// all are done.
  ClusterRows(int ctas, const Int32& rank, int groups, int rows, int parts)
      : ctas_(ctas),
        rank_(rank),
        s_given_(shared_tensor(float32, {groups, ctas, parts, rows, 1})),
        given_(mbarrier::alloc(std::vector<int64_t>(static_cast<size_t>(groups), int64_t{128} * ctas))) {}

  /// The side of one warp group, whose threads execute it.
  struct Group {
    ClusterRows& all;
    int group;

    int ctas() const { return all.ctas_; }
    /// Gives the numbers to every CTA, and waits for those of all.
    void give(const std::vector<RegisterTensor*>& parts) {
      for (int cta = 0; cta < all.ctas_; ++cta) {
        for (size_t part = 0; part < parts.size(); ++part)
          store_remote_shared(all.s_given_[group][all.rank_][static_cast<int64_t>(part)], *parts[part], cta);
        mbarrier::arrive(remote_barrier(all.given_[group], cta));
      }
      mbarrier::wait(all.given_[group], 0, {.scope = Scope::kCluster});
    }
    /// What that CTA gave.
    RegisterValue taken(int cta, int part) const { return load_shared(all.s_given_[group][cta][part]); }
  };
  Group group(int group) { return {*this, group}; }

 private:
  int ctas_;
  Int32 rank_;
  SharedTensor s_given_;
  BarrierArray given_;
};

}  // namespace imbrex::kernels
