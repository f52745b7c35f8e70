// SPDX-License-Identifier: Apache-2.0
#include "cuda_host/host/device_attributes.h"

#include <fmt/format.h>

#include "core/target.h"

namespace imbrex::cuda {
namespace {

constexpr int kLastDeviceAttribute = 147;

}  // namespace

std::optional<int> device_attribute(const Settings& settings, int attribute, int device) {
  const GpuModel& gpu = settings.gpu;
  const Target& t = *find_target(gpu.target);
  switch (attribute) {
#define ATTRIBUTE(number, name, value) \
  case number:                         \
    return static_cast<int>(value);
#include "cuda_host/abi/device_attributes.def"
#undef ATTRIBUTE
    default:
      break;
  }
  if (attribute < 1 || attribute > kLastDeviceAttribute) return std::nullopt;
  return 0;
}

std::string pci_bus_id(int device) { return fmt::format("0000:{:02X}:00.0", device + 1); }

CUuuid device_uuid(int device) {
  CUuuid uuid{};
  constexpr char kText[] = "imbrex vgpu";
  std::copy(std::begin(kText), std::end(kText), uuid.bytes);
  uuid.bytes[15] = static_cast<unsigned char>(device);
  return uuid;
}

}  // namespace imbrex::cuda
