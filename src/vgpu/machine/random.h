// SPDX-License-Identifier: Apache-2.0
// The scheduler's random numbers: splitmix64, the same on every machine.
#pragma once

#include <cstdint>

namespace imbrex::vgpu {

class Random {
 public:
  /// Seed 0 gives a generator that is_plain(): callers then take their plain, fair order.
  Random(uint64_t seed, uint64_t stream) : plain_(seed == 0), state_(seed * 0x9E3779B97F4A7C15u + stream) {}
  bool is_plain() const { return plain_; }
  uint64_t next() {
    uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  /// A number below `end`.
  uint64_t below(uint64_t end) { return next() % end; }
  /// True once in `n` times.
  bool once_in(uint64_t n) { return below(n) == 0; }

 private:
  bool plain_;
  uint64_t state_;
};

}  // namespace imbrex::vgpu
