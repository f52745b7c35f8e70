// SPDX-License-Identifier: Apache-2.0
// Numbers that wait in shared memory until they are needed again.
#pragma once

#include <vector>

#include "imbrex/lang.h"

namespace imbrex::kernels {

/// Numbers that are the same for the whole CTA, where registers are scarce: one that is needed behind a loop takes a register in
/// that loop, and one that a warp group needs takes one in those that stand before it as well, of the few that setmaxnreg leaves
/// them, though their threads never use it.
class KeptNumbers {
 public:
  /// The whole CTA executes it, and has them afterwards. Without `keeps` the numbers stay where they are.
  KeptNumbers(bool keeps, std::vector<Int32*> numbers) {
    if (!keeps) return;
    for (Int32* number : numbers) {
      kept_.push_back({number, shared_tensor(int32, {1})});
      store_shared(kept_.back().place, full(int32, {1}, *number));
    }
    sync();
  }
  /// Reads all of them, so that what they were before is needed no more.
  void reload() const {
    for (const auto& [number, place] : kept_) *number = place.item({0});
  }

 private:
  struct Kept {
    Int32* number;
    SharedTensor place;
  };
  std::vector<Kept> kept_;
};

}  // namespace imbrex::kernels
