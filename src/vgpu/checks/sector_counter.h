// SPDX-License-Identifier: Apache-2.0
// What the accesses of threads take of global memory, in sectors, counted by instruction. A cluster that does not
// count has no counter.
#pragma once

#include <utility>
#include <vector>

#include "imbrex/inspect/sectors.h"
#include "vgpu/checks/instruction_counts.h"
#include "vgpu/memory/memory.h"

namespace imbrex::vgpu {

class SectorCounter {
 public:
  explicit SectorCounter(size_t instructions) : counts_(instructions) {}

  /// The instruction accesses `bytes` of global memory at each lane's host address.
  void accessed(const Instruction& insn, const std::byte* const* host, Mask lanes, uint32_t bytes,
                GlobalAccess access);
  /// Adds what another cluster counted.
  void add(const SectorCounter& other) { counts_.add(other.counts_); }
  /// Instructions that accessed global memory, in the order of the PTX.
  std::vector<SectorUse> report(const Program& program) const { return counts_.report(program); }

 private:
  struct Count {
    int64_t requests = 0, sectors = 0, ideal = 0, bytes_asked = 0;
    uint8_t bytes = 0;
    GlobalAccess access = GlobalAccess::kLoad;

    bool is_zero() const { return requests == 0; }
    void add(const Count& other);
    SectorUse use(CodePlace place) const {
      return {std::move(place), access, bytes, requests, sectors, ideal, bytes_asked};
    }
  };
  InstructionCounts<Count> counts_;
  WarpAccess request_;
};

}  // namespace imbrex::vgpu
