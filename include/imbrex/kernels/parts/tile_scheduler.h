// SPDX-License-Identifier: Apache-2.0
// Tiles for persistent clusters, by cluster launch control.
#pragma once

#include "imbrex/kernels/parts/pipeline.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

/// The grid has a cluster per tile. Of those, as many run as fit the GPU; in each, a scheduler warp cancels a
/// cluster that has not been launched, and every role of both CTAs goes on to its tile:
///
///   TileScheduler scheduler(kCtas, 7, rank);                  ... with the other barriers ...
///   if (auto warp = single_warp(2)) scheduler.run();          ... the scheduler's role ...
///   if (auto warp = single_warp(0)) {                         ... and each of the others ...
///     Int32 tile = scheduler.first_tile();
///     for (Loop tiles : forever()) {
///       ... work on `tile` ...
///       tiles.break_if(!scheduler.next(tile));
///     }
///   }
///
/// CTA 0 of the cluster asks; the response is written to the shared memory of every CTA (multicast). What a
/// checker or a trace says of next() names the line of the kernel that calls it.
struct TileScheduler {
  /// `cluster_ctas`: CTAs of a cluster, at least 2, along x of the grid; `rank`: this CTA's. `consumer_warps`:
  /// the warps of a CTA that call next(), the scheduler warp among them. The whole CTA executes it; usable
  /// after the next cluster_sync().
  TileScheduler(int cluster_ctas, int consumer_warps, const Int32& rank,
                SourceLocation where = SourceLocation::current())
      : cluster_ctas(cluster_ctas),
        rank(rank),
        s_response(shared_tensor(int32, clc::kResponseShape)),
        pipe(1, 1, cluster_ctas * consumer_warps * 32, Scope::kCluster, where) {}

  /// The tile that the cluster was launched for.
  Expr first_tile() const { return block_idx.x / cluster_ctas; }

  /// Waits for the scheduler's response and moves `tile` on; false when no tile is left. All threads of a
  /// consumer warp.
  Expr next(Int32& tile, SourceLocation where = SourceLocation::current()) {
    pipe.consumer_acquire(where);
    auto response = clc::query(s_response, where);
    // the response has been read before the next one is written
    fence::proxy_async(fence::Space::kShared, where);
    mbarrier::arrive(remote_barrier(pipe.consumer_barrier(), 0, where), {}, where);
    pipe.consumer_advance();
    tile = response.x / cluster_ctas;
    return response.is_canceled;
  }

  /// The scheduler's role, of one warp, until no tile is left.
  void run() {
    Int32 tile = 0;
    for (Loop tiles : forever()) {
      // Each CTA expects its copy of the response; CTA 0 asks when all have read the last one.
      if (auto thread = single_thread())
        mbarrier::arrive_and_expect_tx(pipe.producer_barrier(), clc::kResponseBytes);
      if (auto leader = when(rank == 0)) {
        pipe.producer_acquire();
        clc::try_cancel(s_response, pipe.producer_barrier(), {.multicast = true});
      }
      pipe.producer_advance();
      // after a response that says no, there must be no further request
      tiles.break_if(!next(tile));
    }
  }

 private:
  int cluster_ctas;
  Int32 rank;
  SharedTensor s_response;
  Pipeline pipe;
};

}  // namespace imbrex::kernels
