// SPDX-License-Identifier: Apache-2.0
// Sums of tiles over the CTAs of a cluster, through distributed shared memory.
#pragma once

#include <vector>

#include "imbrex/lang.h"
#include "parts/pipeline.h"

namespace imbrex::kernels {

/// CTAs that computed partial sums of one tile divide its columns: each gives every other one the other's
/// part, and adds what it is given to its own, always in the same order, so that a result does not depend on
/// who comes first. Nothing goes through global memory, and nobody waits for more than the parts it adds.
struct ClusterSum {
  /// `splits` CTAs, whose numbers are `split`; that of number s has rank s * stride + member. In each of them
  /// `groups` warp groups have a tile of `rows` x `columns`. The whole CTA executes it; usable after the next
  /// cluster_sync(), and no CTA may end before all are done.
  ClusterSum(int splits, const Int32& split, int stride, const Int32& member, int groups, int rows,
             int columns)
      : splits(splits),
        rows(rows),
        part_n(columns / splits),
        split(split),
        stride(stride),
        member(member),
        s_parts(shared_tensor(float32, {groups, splits - 1, rows, part_n})) {
    require(columns % (8 * splits) == 0, "{} columns in parts for {} CTAs, of which each is a multiple of 8",
            columns, splits);
    constexpr int kThreads = 128;  // of a group, all of which arrive
    for (int i = 0; i < groups; ++i)
      pipes.emplace_back(1, kThreads * (splits - 1), kThreads * (splits - 1), Scope::kCluster);
  }

  /// The sum of columns part_n * split, ... of the tiles; the threads of group `group` execute it.
  RegisterTensor operator()(int group, const RegisterTensor& tile) {
    Pipeline& pipe = pipes[static_cast<size_t>(group)];
    RegisterTensor sum = tile.slice({0, 0}, {rows, part_n});
    pipe.producer_acquire();  // the others have read what they were given before
    for (int part = 0; part < splits; ++part) {
      auto given = tile.slice({0, part * part_n}, {rows, part_n});
      if (auto mine = when(split == part)) sum = given;
      if (auto other = otherwise()) {
        store_remote_shared(s_parts[group][select(split < part, split, split - 1)], given, rank_of(part));
        mbarrier::arrive(remote_barrier(pipe.full_barriers[0], rank_of(part)));
      }
    }
    pipe.producer_advance();
    pipe.consumer_acquire();
    for (int i = 0; i < splits - 1; ++i) sum += load_shared(s_parts[group][i]);
    for (int part = 0; part < splits; ++part)
      if (auto other = when(split != part))
        mbarrier::arrive(remote_barrier(pipe.empty_barriers[0], rank_of(part)));
    pipe.consumer_advance();
    return sum;
  }

  int splits, rows, part_n;

 private:
  Expr rank_of(int part) const { return member + part * stride; }

  Int32 split;
  int stride;
  Int32 member;
  SharedTensor s_parts;  // of every group, the places of the others, by number
  std::vector<Pipeline> pipes;
};

}  // namespace imbrex::kernels
