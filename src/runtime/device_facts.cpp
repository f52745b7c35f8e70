// SPDX-License-Identifier: Apache-2.0
#include "runtime/device_facts.h"

#include <fmt/format.h>

#include <cstdlib>
#include <optional>

#include "imbrex/device.h"
#include "imbrex/error.h"
#include "runtime/cuda_driver.h"

namespace imbrex::runtime {
namespace {

/// CUDA device 0; nothing where there is none.
std::optional<DeviceFacts> cuda_facts(std::string& why_not) {
  const CudaDriver* driver = CudaDriver::find(&why_not);
  if (driver == nullptr) return std::nullopt;
  CUdevice device = 0;
  char name[256] = {};
  int major = 0, minor = 0;
  driver->check(driver->cuDeviceGet(&device, 0), "CUDA device 0");
  driver->check(driver->cuDeviceGetName(name, sizeof name, device), "device name");
  driver->check(driver->cuDeviceGetAttribute(&major, kDeviceAttributeComputeCapabilityMajor, device),
                "device attribute");
  driver->check(driver->cuDeviceGetAttribute(&minor, kDeviceAttributeComputeCapabilityMinor, device),
                "device attribute");
  return DeviceFacts{name, target_of(major, minor), false};
}

}  // namespace

DeviceFacts device_facts(const std::string& kind, const std::string& target) {
  if (kind != "virtual") {
    std::string why_not;
    std::optional<DeviceFacts> facts = cuda_facts(why_not);
    if (facts && target_runs(facts->target, target)) return *facts;
    if (facts) why_not = fmt::format("the kernel is for {}, {} runs {}", target, facts->name, facts->target);
    if (kind == "cuda")
      throw DeviceError(Diagnostic{{}, why_not, {}, "use the virtual GPU: --device virtual"});
  }
  vgpu::Options options;
  options.target = target;
  return {Device::open("virtual", target, options).name(), target, true};
}

bool target_runs(const std::string& own, const std::string& wanted) {
  if (own == wanted) return true;
  auto number = [](const std::string& name) { return std::atoi(name.c_str() + 3); };
  return wanted.back() != 'a' && wanted.back() != 'f' && number(wanted) <= number(own);
}

std::string target_of(int major, int minor) {
  return fmt::format("sm_{}{}{}", major, minor, major >= 9 ? "a" : "");
}

}  // namespace imbrex::runtime
