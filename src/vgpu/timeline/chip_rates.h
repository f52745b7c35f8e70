// SPDX-License-Identifier: Apache-2.0
// What launches, L2 and memory cost beside their bandwidths and latencies, which the cost model has. Only replays read it.
#pragma once

#include <vector>

#include "imbrex/vgpu/gpu_numbers.h"
#include "imbrex/vgpu/timeline.h"

namespace imbrex::vgpu {

/// Everything is in clocks of an SM and bytes. M: measured on an H200 (docs/measurements/2026-11-23-starts.md); A: assumed.
struct ChipRates {
  double warp_start = 3;    // M: of an SM, for each warp of a CTA that it starts
  double grid_start = 1.2;  // M: of the whole chip, for each CTA: 4224 empty ones take 2.23 us more than 528
  double cold_start =
      2200;  // A: what the first CTAs of a launch wait for besides, which finds nothing in caches; fitted
             // to additions of a few thousand numbers after L2 was flushed

  // SMs of a group (GPC) that ask for the same bytes while those are under way are served together.
  double gpcs = 8;  // M: SMs that are 33 or more CTAs apart are not served together
  double merge_window =
      120;  // A: how long a request is under way that L2 can answer; so that L2 is read as much as ncu
            // counts for two kernels with small tiles. Less than the 250 M of SMs in step
  double l2_fill_cost = 0.98;  // M: of L2, for a byte that comes from memory, in bytes read, on top
  double memory_spread =
      35;  // M: by how much each doubling of the lines asked for together delays the last of them

  double store_bytes = 32;         // M: of one SM's way to L2
  double map_store_latency = 156;  // M: until a bulk store by a tensor map has been read, besides
  double store_cost = 1.98;        // M: of L2, for a byte written, in bytes read
  double partial_line_cost = 1;    // M: of a line that gets sectors in part, in sectors, besides those
  double partial_load_cost = 0.4;  // M: of a line that a bulk load by a tensor map reads so, of L2
  double outside_cost = 1.15;      // M: of L2, for a byte of such a load outside of the tensor, in bytes read
  double write_back_cost =
      1.13;  // M: of memory, for a byte written, in bytes read: a copy moves 4.27 TB/s, reading 4.55
  double dirty_share = 0.35;  // M: of L2: bytes written that are not in memory when the launch ends

  // Atomic updates, by passes: of each sector as many as its most wanted word has lanes.
  double update_issue = 1.2;        // M: of one SM's way to L2
  double update_cost = 165;         // M: of L2, in bytes read
  double update_line = 1.2;         // M: of the line, which follow each other
  double bulk_update_issue = 1.25;  // M: of a bulk copy that updates: of the SM's way, in bytes stored
  double bulk_update_cost = 72;     // M: and of L2 for each of its sectors, in bytes read

  // Through global memory: a fence of the GPU's scope, or a release, behind the last store; and who polls a flag, from when
  // L2 has it to the next instruction.
  double far_fence = 390;                // M
  double flag_latency = 600;             // M
  double map_latency = 86;               // M: of a bulk load, where a tensor map says what it moves
  double multicast_latency = 90;         // M: of a bulk load to CTAs of a cluster, besides
  double mixing = 0.35;                  // M: what of the requests behind it at memory a bulk load waits for
  double tma_submit = 40;                // M: of the warp that issues a copy
  double cluster_barrier_latency = 340;  // M: barrier.cluster, from the last arrival to the next instruction
  double code_bytes = 32768;             // M: of machine code, that an SM holds
  double code_line = 16;                 // M: of its way there, for each 128 bytes that it does not hold
};

/// The rates of a target by its number: Hopper's, which stand for older chips too. Of Blackwell's nothing was measured: they
/// have neither of these costs but those of the bytes.
ChipRates chip_rates(int sm);

/// The rates of a target by name, and where each comes from; those that it does not have are left out.
std::vector<GpuNumber> chip_rate_numbers(int sm);

/// `rates` with a resource that costs nothing.
ChipRates without(ChipRates rates, Resource resource);

}  // namespace imbrex::vgpu
