// SPDX-License-Identifier: Apache-2.0
// Kernels that the library launches in several configurations: made on the first call of each for a device, and kept with
// the device.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "library_kernel.h"

namespace imbrex {

/// `kernel` for the device; `key` tells configurations apart. Any thread may call it.
template <class K>
Kernel<K>& configured_kernel(const Device& device, const K& kernel, const std::array<int, 3>& key) {
  static std::mutex turn;
  // Never freed: at exit the driver may be unloaded first.
  static auto& kernels =
      *new std::map<std::pair<const void*, std::array<int, 3>>, std::unique_ptr<Kernel<K>>>;
  const std::lock_guard lock(turn);
  std::unique_ptr<Kernel<K>>& made = kernels[{&device.backend(), key}];
  if (!made) made = std::make_unique<Kernel<K>>(library_kernel(kernel, device));
  return *made;
}

}  // namespace imbrex
