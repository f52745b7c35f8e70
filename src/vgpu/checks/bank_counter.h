// SPDX-License-Identifier: Apache-2.0
// What the accesses of threads take of shared memory's banks, and a count of it by instruction. A cluster
// that does not count has no counter.
#pragma once

#include <utility>
#include <vector>

#include "imbrex/inspect/banks.h"
#include "vgpu/checks/instruction_counts.h"
#include "vgpu/memory/memory.h"

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
  void add(const BankCounter& other) { counts_.add(other.counts_); }
  /// Instructions that accessed shared memory, in the order of the PTX.
  std::vector<BankUse> report(const Program& program) const { return counts_.report(program); }

 private:
  struct Count {
    int64_t accesses = 0, wavefronts = 0, ideal = 0;
    int degree = 1;
    uint8_t bytes = 0;
    bool writes = false;

    bool is_zero() const { return accesses == 0; }
    void add(const Count& other);
    BankUse use(CodePlace place) const {
      return {std::move(place), writes, bytes, accesses, wavefronts, ideal, degree};
    }
  };
  InstructionCounts<Count> counts_;
  BankMeter meter_;
};

}  // namespace imbrex::vgpu
