// SPDX-License-Identifier: Apache-2.0
// What the checks of tiles in one CTA's shared memory work on.
#pragma once

#include "vgpu/checks/chunk_origins.h"
#include "vgpu/checks/findings.h"
#include "vgpu/memory/memory.h"

namespace imbrex::vgpu {

struct TileContext {
  FindingLog& log;
  const Program& program;
  const GlobalMemory& global;
  const CtaIdentity& cta;
  ChunkOrigins& origins;
};

}  // namespace imbrex::vgpu
