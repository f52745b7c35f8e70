// SPDX-License-Identifier: Apache-2.0
// Operands of attention's benchmark: many numbers without the time that as many random ones take on the host.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "imbrex/runtime/device_tensor.h"

namespace imbrex::bench {

/// A few millions of random numbers, again and again. `owners` keeps the memory.
inline DeviceTensor repeated(const Device& device, DataType dtype, std::vector<int64_t> shape, uint64_t seed,
                             std::vector<DeviceTensor>& owners) {
  int64_t n = 1;
  for (int64_t extent : shape) n *= extent;
  constexpr int64_t kPart = int64_t{1} << 21;
  if (n <= kPart) return DeviceTensor::random(device, dtype, std::move(shape), seed);
  const DeviceTensor part = DeviceTensor::random(device, dtype, {kPart}, seed);
  const int64_t parts = (n + kPart - 1) / kPart;
  DeviceTensor all = DeviceTensor::empty(device, dtype, {parts * kPart});
  for (int64_t i = 0; i < parts; ++i) DeviceTensor(all.slice({i * kPart}, {kPart})).copy_from(part);
  device.synchronize();
  owners.push_back(all);
  return DeviceTensor::view(device, all.address(), dtype, std::move(shape));
}

/// A cache of float8 of latent attention: some thousand rows, again and again.
inline DeviceTensor latent_float8_cache(const Device& device, const std::vector<int64_t>& shape,
                                        int64_t value_size, std::vector<DeviceTensor>& owners) {
  const int64_t rows = shape[0] * shape[2], bytes = shape[3], part = std::min<int64_t>(rows, 4096);
  HostTensor host = HostTensor::random(float8_e4m3, {part, bytes}, 2);
  const HostTensor rest = HostTensor::random(bfloat16, {64}, 3);
  for (int64_t row = 0; row < part; ++row) {
    std::byte* at = host.bytes().data() + row * bytes + value_size;
    for (int64_t i = 0; i < value_size / 128; ++i) {
      const float factor = 0.5F + static_cast<float>((row + i) % 128) / 128;
      std::memcpy(at + 4 * i, &factor, 4);
    }
    std::memcpy(at + value_size / 32, rest.bytes().data(), 128);
  }
  const DeviceTensor from = DeviceTensor::from_host(device, host);
  const DeviceTensor all = DeviceTensor::empty(device, float8_e4m3, {(rows + part - 1) / part * part, bytes});
  for (int64_t row = 0; row < rows; row += part)
    DeviceTensor(all.slice({row, 0}, {part, bytes})).copy_from(from);
  device.synchronize();
  owners.push_back(all);
  return DeviceTensor::view(device, all.address(), float8_e4m3, shape);
}

}  // namespace imbrex::bench
