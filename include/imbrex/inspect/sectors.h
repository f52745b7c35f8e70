// SPDX-License-Identifier: Apache-2.0
// Coalescing: global memory and its caches move sectors of 32 bytes, and what the lanes of a warp access in one
// instruction (a request) costs the sectors that it touches, however few of their bytes are asked for.
#pragma once

#include <cstdint>

#include "imbrex/inspect/banks.h"

namespace imbrex {

inline constexpr int kSectorBytes = 32;

/// What one request touches. Of a warp that reads 32 consecutive, aligned floats: 4 sectors, 4 ideal, 128 bytes.
struct SectorReport {
  int lanes = 0;      ///< that take part; 0: no request
  int sectors = 0;    ///< moved, as ncu counts them (l1tex__t_sectors_pipe_lsu_mem_global_op_*)
  int ideal = 0;      ///< that the different bytes asked for would fill if they lay side by side
  int64_t bytes = 0;  ///< asked for; those that several lanes want count for each
};
/// How lanes that want the same share a sector.
enum class SectorSharing : uint8_t {
  kTogether,  ///< loads, stores, cp.async: a sector moves once for all its lanes
  kByTurns,  ///< atomics and reductions: lanes that want the same word take turns, each of which moves the sector
};
/// `access.bytes` may be 32 too; its `access` kind makes no difference. LaunchError when there are more than 32
/// lanes, or a width or alignment that no instruction has. Compared with an H200's counters, access by access
/// (tests/analysis/data).
SectorReport sector_report(const WarpAccess& access, SectorSharing sharing = SectorSharing::kTogether);

}  // namespace imbrex
