// SPDX-License-Identifier: Apache-2.0
// Kernels that functions of the library launch: made on the first call for a device, and kept with the device.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "library_kernel.h"

namespace imbrex {

/// K with its default configuration. Any thread may call it.
template <class K>
Kernel<K>& kernel_of_device(const Device& device) {
  static std::mutex turn;
  // Never freed: at exit the driver may be unloaded first.
  static auto& kernels = *new std::map<const void*, std::unique_ptr<Kernel<K>>>;
  const std::lock_guard lock(turn);
  std::unique_ptr<Kernel<K>>& kernel = kernels[&device.backend()];
  if (!kernel) kernel = std::make_unique<Kernel<K>>(library_kernel(K{}, device));
  return *kernel;
}

}  // namespace imbrex
