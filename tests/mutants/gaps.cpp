// SPDX-License-Identifier: Apache-2.0
// Bugs that no checker reports yet. The suite says when one of them is reported, so that its row can go.
#include "mutants/verdict.h"

namespace imbrex::mutants {
namespace {

constexpr Known kGaps[] = {
    {"V2", "load-shift-4096", "", 0, "the tile of an earlier trip is read again: initialised, and in order"},
    {"mxf8", "transpose-a", "", 0, "a tile read the other way round looks like another tile of this size"},
    {"mxf8", "transpose-b", "", 0, "a tile read the other way round looks like another tile of this size"},
    {"*", "map-swizzle", "", 0, "what threads stage for a TMA store has no recorded layout"},
};

}  // namespace

std::span<const Known> known_gaps() { return kGaps; }

}  // namespace imbrex::mutants
