// SPDX-License-Identifier: Apache-2.0
// Pictures of which tiles fit.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "imbrex/inspect/tiling.h"
#include "imbrex/runtime/compile.h"
#include "subcommands.h"

namespace imbrex::command {

/// One configuration of a kernel, compiled.
struct TileCandidate {
  std::string config;
  KernelResources resources;
  std::optional<AssembledResources> assembled;  // by ptxas, where that was asked for
  Occupancy occupancy;
  std::string error;  // it does not compile
};

/// Compiles the chosen kernel with a configuration; `with_ptxas` assembles it too. The machine code and what fits
/// are those of GPUs of `target`, which run the kernel.
TileCandidate compile_candidate(const KernelChoice& choice, const Configuration& configuration,
                                bool with_ptxas, const std::string& target);

/// Every configuration by the shared memory and the registers a CTA takes (where there is tensor memory, its
/// columns), over the regions in which so many CTAs fit on an SM.
std::string tile_space_svg(const std::string& kernel, const std::string& target,
                           const std::vector<TileCandidate>& candidates);
/// Block m and n around a typed tile: what fits with its k, stages and threads, and the operations per byte.
std::string tile_region_svg(const GpuModel& gpu, const MatmulTile& tile);

}  // namespace imbrex::command
