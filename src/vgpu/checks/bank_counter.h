// SPDX-License-Identifier: Apache-2.0
// What the accesses of threads take of shared memory's banks, and a count of it by instruction. A cluster
// that does not count has no counter.
#pragma once

#include <vector>

#include "imbrex/inspect/banks.h"
#include "vgpu/memory/memory.h"
#include "vgpu/program/program.h"

namespace imbrex::vgpu {

/// How one instruction of a warp meets the banks.
class BankMeter {
 public:
  /// `bytes` at each lane's host address; some lane takes part.
  BankReport measure(const std::byte* const* host, Mask lanes, uint32_t bytes, BankAccess access);

 private:
  WarpAccess access_;
};

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
  BankMeter meter_;
};

}  // namespace imbrex::vgpu
