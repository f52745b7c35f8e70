// SPDX-License-Identifier: Apache-2.0
// Bugs that no checker reports yet. The suite says when one of them is reported, so that its row can go.
#include "mutants/verdict.h"

namespace imbrex::mutants {
namespace {

constexpr const char* kLanes = "the lanes of a warp that wait for or read the same place count as one";
constexpr const char* kNoOrigin =
    "how operands lie in shared memory is known only where TMA has loaded them, and from swizzle and box";

constexpr Known kGaps[] = {
    {"V1 V2", "drop-sync", "sync();", 1, kLanes},
    {"V1 V2", "early-sync", "sync();", 1, kLanes},
    {"V1 V2", "late-sync", "sync();", 1, kLanes},
    {"V1 V2 V3 V4 V5 V6", "late-init", "", 0, kLanes},
    {"V5 V6", "one-lane-arrive", "clc_pipe", 0, kLanes},
    {"V5", "early-arrive", "clc_pipe", 3, kLanes},
    {"V5", "relaxed-arrive", "clc_pipe", 3, kLanes},
    {"V0", "one-lane-proxy-fence", "", 0, "the lanes' cp.async count as the warp's"},
    {"V2", "load-shift-4096", "", 0, "the tile of an earlier trip is read again: initialised, and in order"},
    {"*", "map-swizzle", "", 0, "what threads stage for a TMA store has no recorded layout"},
    {"*", "matrix-base-offset", "", 0, kNoOrigin},
    {"V0", "matrix-stride", "", 0, kNoOrigin},
    {"V0", "matrix-a-next-line", "", 0, kNoOrigin},
    {"V0", "transpose-a", "", 0, kNoOrigin},
    {"V0 V6", "transpose-b", "", 0, kNoOrigin},
    {"H5", "next-warp", "warp_group(0, 4)", 0, "setmaxnreg by a part of a warp group is not noticed"},
    {"H5", "previous-warp", "warp_group(0, 4)", 0, "setmaxnreg by a part of a warp group is not noticed"},
};

}  // namespace

std::span<const Known> known_gaps() { return kGaps; }

}  // namespace imbrex::mutants
