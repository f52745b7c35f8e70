// SPDX-License-Identifier: Apache-2.0
// Counts, by instruction, what the accesses of threads take of shared memory's banks. A cluster that does not
// count has none.
#pragma once

#include <vector>

#include "imbrex/banks.h"
#include "vgpu/memory.h"
#include "vgpu/program.h"

namespace imbrex::vgpu {

class BankCounter {
 public:
  explicit BankCounter(size_t instructions) : counts_(instructions) {}

  /// The instruction accesses `bytes` at each lane's host address.
  void accessed(const Instruction& insn, Space space, const std::byte* const* host, Mask lanes,
                uint32_t bytes, bool writes, BankAccess access);
  /// Adds what another cluster counted.
  void add(const BankCounter& other);
  /// Instructions that accessed shared memory, in the order of the PTX.
  std::vector<BankUse> report(const Program& program) const;

 private:
  struct Count {
    int64_t accesses = 0, wavefronts = 0, ideal = 0;
    int degree = 1;
    uint8_t bytes = 0;
    bool writes = false;
  };
  std::vector<Count> counts_;  // by instruction
  WarpAccess access_;
};

}  // namespace imbrex::vgpu
