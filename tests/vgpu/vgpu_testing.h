// SPDX-License-Identifier: Apache-2.0
// What the virtual GPU's tests share.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "imbrex/vgpu/virtual_gpu.h"

namespace imbrex::vgpu {

inline std::string read_data(const std::string& name) {
  std::ifstream file(std::string(IMBREX_SOURCE_DIR) + "/tests/vgpu/data/" + name);
  EXPECT_TRUE(file.good()) << name;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// A device buffer filled from a vector.
template <class T>
DeviceAddress to_device(VirtualGpu& gpu, const std::vector<T>& values) {
  const DeviceAddress address = gpu.allocate(static_cast<int64_t>(values.size() * sizeof(T)));
  gpu.copy_to_device(address, values.data(), static_cast<int64_t>(values.size() * sizeof(T)));
  return address;
}

template <class T>
std::vector<T> from_device(const VirtualGpu& gpu, DeviceAddress address, size_t count) {
  std::vector<T> values(count);
  gpu.copy_from_device(values.data(), address, static_cast<int64_t>(count * sizeof(T)));
  return values;
}

}  // namespace imbrex::vgpu
