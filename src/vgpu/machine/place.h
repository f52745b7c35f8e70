// SPDX-License-Identifier: Apache-2.0
// A checked address: where the bytes are on the host, and what they are to the kernel.
#pragma once

#include "vgpu/memory/memory.h"

namespace imbrex::vgpu {

class Cta;
class Warp;

struct Place {
  std::byte* host = nullptr;
  Space space = Space::kGlobal;  // kGlobal, kSharedCta or kLocal
  Cta* cta = nullptr;            // whose shared memory
  Warp* warp = nullptr;          // whose local memory
  uint64_t address = 0;          // in global memory; offset bits in shared; offset in local memory
};

}  // namespace imbrex::vgpu
