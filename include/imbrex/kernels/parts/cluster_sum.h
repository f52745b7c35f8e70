// SPDX-License-Identifier: Apache-2.0
// Sums of tiles over the CTAs of a cluster, through distributed shared memory.
#pragma once

#include <vector>

#include "imbrex/kernels/parts/pipeline.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

/// The CTAs that computed partial sums of one tile divide its columns: each sends every other CTA that CTA's
/// columns and adds what it receives to its own, always in the same order, so that the result does not depend
/// on timing. Nothing goes through global memory, and a CTA waits for no more than the parts it adds.
struct ClusterSum {
  /// Among `split_k` CTAs, of which this one is number `rank_k`: CTA s has rank s * stride + member in the
  /// cluster. In each of them `groups` warp groups have a tile of `rows` x `columns`. The whole CTA executes
  /// it; usable after the next cluster_sync(), and no CTA may end before all are done.
  ClusterSum(int split_k, const Int32& rank_k, int stride, const Int32& member, int groups, int rows,
             int columns, SourceLocation where)
      : split_k(split_k),
        rows(rows),
        part_n(columns / split_k),
        rank_k(rank_k),
        stride(stride),
        member(member),
        s_parts(shared_tensor(float32, {groups, split_k - 1, rows, part_n})) {
    require(columns % (8 * split_k) == 0,
            "{} columns are divided among {} CTAs: a part is not a multiple of 8", columns, split_k);
    constexpr int kThreads = 128;  // of a group, all of which arrive
    for (int i = 0; i < groups; ++i)
      pipes.emplace_back(1, kThreads * (split_k - 1), kThreads * (split_k - 1), Scope::kCluster, where);
  }

  /// The sum of the tiles in columns part_n * rank_k, ... of them. The threads of warp group `group` execute it.
  RegisterTensor operator()(int group, const RegisterBase& tile) {
    Pipeline& pipe = pipes[static_cast<size_t>(group)];
    RegisterTensor sum = tile.slice({0, 0}, {rows, part_n});
    pipe.producer_acquire();  // the others have read what was sent before
    for (int part = 0; part < split_k; ++part) {
      auto given = tile.slice({0, part * part_n}, {rows, part_n});
      if (auto mine = when(rank_k == part)) sum = given;
      if (auto other = otherwise()) {
        store_remote_shared(s_parts[group][select(rank_k < part, rank_k, rank_k - 1)], given, rank_of(part));
        mbarrier::arrive(remote_barrier(pipe.full_barriers[0], rank_of(part)));
      }
    }
    pipe.producer_advance();
    pipe.consumer_acquire();
    for (int i = 0; i < split_k - 1; ++i) sum += load_shared(s_parts[group][i]);
    for (int part = 0; part < split_k; ++part)
      if (auto other = when(rank_k != part))
        mbarrier::arrive(remote_barrier(pipe.empty_barriers[0], rank_of(part)));
    pipe.consumer_advance();
    return sum;
  }

  int split_k, rows, part_n;

 private:
  Expr rank_of(int part) const { return member + part * stride; }

  Int32 rank_k;
  int stride;
  Int32 member;
  SharedTensor s_parts;  // of every group: what the others send, by their numbers
  std::vector<Pipeline> pipes;
};

}  // namespace imbrex::kernels
