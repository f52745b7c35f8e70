// SPDX-License-Identifier: Apache-2.0
// What is known of a device before anything runs on it.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace imbrex::runtime {

struct DeviceFacts {
  std::string name, target;  ///< as Device::name() and target()
  bool is_virtual = false;
};

/// The device that Device::open(kind, target) gives. On a CUDA GPU no context is made, which would take a
/// tenth of a second and some hundred MiB of its memory. Throws as Device::open does, and for a kernel that
/// the CUDA GPU asked for cannot run.
DeviceFacts device_facts(const std::string& kind, const std::string& target);

/// What device_facts() found for a CUDA GPU in an earlier process, if the kernel driver lists the same GPUs
/// and the same ones are visible. Does not start the CUDA driver, which takes a tenth of a second. Nothing
/// for kind "virtual", where the kernel driver lists nothing, and for a GPU that cannot run `target`. Enough
/// to find what was kept, but not to launch: whether the driver starts is not known.
std::optional<DeviceFacts> remembered_facts(const std::string& kind, const std::string& target);

/// The CUDA GPUs of device 0's name, by ordinal.
std::vector<int> gpus_like_the_first();

/// True when a device whose newest target is `own` runs kernels written for `wanted`: compiled for it, or anew for the
/// device (core/target.h).
bool target_runs(const std::string& own, const std::string& wanted);
/// "sm_90a" for 9 and 0.
std::string target_of(int major, int minor);

}  // namespace imbrex::runtime
