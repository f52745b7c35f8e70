// SPDX-License-Identifier: Apache-2.0
// Kernels that are launched while the kernel before them ends, where the GPU can.
#pragma once

#include "imbrex/lang.h"
#include "imbrex/runtime/kernel.h"

namespace imbrex::parallel {

/// A kernel for the GPU that it runs on. From sm_90 on K<true> is launched while the kernel before it ends, and lets the one behind
/// it be; it waits for the one before where it begins to read memory.
template <template <bool kOverlaps> class K>
class OverlappingKernel {
 public:
  explicit OverlappingKernel(const Device& device, const K<false>& tiles = {})
      : overlaps_(device.can_run("sm_90")), plain_(tiles, device), overlapping_({tiles.block}, device) {}
  /// body(kernel)
  template <class Body>
  void with(Body&& body) {
    if (overlaps_)
      body(overlapping_);
    else
      body(plain_);
  }

 private:
  bool overlaps_;
  Kernel<K<false>> plain_;
  Kernel<K<true>> overlapping_;
};
inline void wait_for_kernel_before(bool overlaps) {
  if (!overlaps) return;
  griddepcontrol::wait();
  griddepcontrol::launch_dependents();
}

}  // namespace imbrex::parallel
