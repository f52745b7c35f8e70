// SPDX-License-Identifier: Apache-2.0
// The registers of a CTA, which setmaxnreg moves between its warps: what it was launched with, and no more. A warp that asks
// for more than the others have given back waits until they give. Those of warps that have exited are nobody's: a warp group
// of an H200 waited for them in vain.
#pragma once

#include <cstdint>
#include <vector>

namespace imbrex::vgpu {

class RegisterPool {
 public:
  /// The CTA begins with so many for each thread of its warps; 0: nobody knows, and there are always enough.
  void begin(size_t warps, int64_t per_thread) {
    entry_ = per_thread;
    held_.assign(warps, per_thread);
  }
  bool has_begun() const { return !held_.empty(); }
  /// What a warp would have to be given to hold so many for each thread; negative: what it would give back.
  int64_t lacks(int warp, int64_t registers) const {
    return entry_ == 0 ? 0 : registers - held_[static_cast<size_t>(warp)];
  }
  /// Of what others gave back, for each thread of one warp.
  int64_t free() const { return free_; }
  int64_t entry() const { return entry_; }
  void hold(int warp, int64_t registers) {
    free_ -= lacks(warp, registers);
    held_[static_cast<size_t>(warp)] = registers;
  }

 private:
  int64_t entry_ = 0, free_ = 0;
  std::vector<int64_t> held_;  // by warp
};

}  // namespace imbrex::vgpu
