// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/device_facts.h"

#include <fmt/format.h>

#include <cstdlib>
#include <optional>

#include "core/target.h"
#include "imbrex/core/error.h"
#include "imbrex/core/version.h"
#include "imbrex/runtime/cache.h"
#include "imbrex/runtime/device.h"
#include "runtime/driver/cuda_driver.h"
#include "runtime/host/files.h"

namespace imbrex::runtime {
namespace {

std::string contents(const std::string& path) { return read_file(path).value_or(""); }

/// Everything that decides which GPU is CUDA's device 0 and what it is, as the kernel driver lists it;
/// nothing where it does not.
std::optional<CacheKey> device_key() {
  const std::string root = "/proc/driver/nvidia";
  CacheKey key{"tool", "device", {{"imbrex", version()}, {"driver", contents(root + "/version")}}};
  const std::vector<std::string> gpus = names_in(root + "/gpus");
  if (key.parts.back().second.empty() || gpus.empty()) return std::nullopt;
  for (const std::string& gpu : gpus)
    key.parts.emplace_back(gpu, contents(root + "/gpus/" + gpu + "/information"));
  // Slices of a GPU (MIG) appear as capabilities; a container may see fewer device files than there are GPUs.
  for (const std::string& folder : {root + "/capabilities", std::string("/dev")}) {
    std::string names;
    for (const std::string& name : names_in(folder))
      if (folder != "/dev" || name.starts_with("nvidia")) names += name + " ";
    key.parts.emplace_back(folder, names);
  }
  for (const char* name : {"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"}) {
    const char* value = std::getenv(name);
    key.parts.emplace_back(name, value == nullptr ? "unset" : fmt::format("'{}'", value));
  }
  return key;
}

/// For remembered_facts() of later processes.
void remember(const DeviceFacts& facts) {
  const std::optional<CacheKey> key = device_key();
  const std::string payload = facts.name + "\n" + facts.target;
  if (key && Cache::shared().load(*key) != payload) Cache::shared().store(*key, payload);
}

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
  DeviceFacts facts{name, target_of(major, minor), false};
  remember(facts);
  return facts;
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

std::optional<DeviceFacts> remembered_facts(const std::string& kind, const std::string& target) {
  if (kind == "virtual") return std::nullopt;
  const std::optional<CacheKey> key = device_key();
  const std::optional<std::string> payload = key ? Cache::shared().load(*key) : std::nullopt;
  if (!payload) return std::nullopt;
  const size_t end = payload->find('\n');
  if (end == std::string::npos) return std::nullopt;
  DeviceFacts facts{payload->substr(0, end), payload->substr(end + 1), false};
  if (!target_runs(facts.target, target)) return std::nullopt;
  return facts;
}

std::vector<int> gpus_like_the_first() {
  const CudaDriver& driver = CudaDriver::get();
  const auto name_of = [&](int ordinal) {
    CUdevice device = 0;
    char name[256] = {};
    driver.check(driver.cuDeviceGet(&device, ordinal), "CUDA device");
    driver.check(driver.cuDeviceGetName(name, sizeof name, device), "device name");
    return std::string(name);
  };
  int count = 0;
  driver.check(driver.cuDeviceGetCount(&count), "number of GPUs");
  std::vector<int> alike;
  for (int ordinal = 0; ordinal < count; ++ordinal)
    if (ordinal == 0 || name_of(ordinal) == name_of(0)) alike.push_back(ordinal);
  return alike;
}

bool target_runs(const std::string& own, const std::string& wanted) {
  return target_for(wanted, own).has_value();
}

std::string target_of(int major, int minor) {
  return fmt::format("sm_{}{}{}", major, minor, major >= 9 ? "a" : "");
}

}  // namespace imbrex::runtime
