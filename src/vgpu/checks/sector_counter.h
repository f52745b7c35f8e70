// SPDX-License-Identifier: Apache-2.0
// What the accesses of threads take of global memory, in sectors, counted by instruction. A cluster that does not
// count has no counter.
#pragma once

#include <vector>

#include "imbrex/inspect/sectors.h"
#include "vgpu/memory/memory.h"
#include "vgpu/program/program.h"

namespace imbrex::vgpu {

class SectorCounter {
 public:
  explicit SectorCounter(size_t instructions) : counts_(instructions) {}

  /// The instruction accesses `bytes` of global memory at each lane's host address.
  void accessed(const Instruction& insn, const std::byte* const* host, Mask lanes, uint32_t bytes,
                GlobalAccess access);
  /// Adds what another cluster counted.
  void add(const SectorCounter& other);
  /// Instructions that accessed global memory, in the order of the PTX.
  std::vector<SectorUse> report(const Program& program) const;

 private:
  struct Count {
    int64_t requests = 0, sectors = 0, ideal = 0, bytes_asked = 0;
    uint8_t bytes = 0;
    GlobalAccess access = GlobalAccess::kLoad;
  };
  std::vector<Count> counts_;  // by instruction
  WarpAccess request_;
};

}  // namespace imbrex::vgpu
