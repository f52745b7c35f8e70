// SPDX-License-Identifier: Apache-2.0
// Results of tuning in the cache: one entry per kernel, device and shape.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "imbrex/inspect/gpu_model.h"
#include "imbrex/lang/kernel_parameters.h"
#include "imbrex/lang/tuning_space.h"
#include "imbrex/runtime/cache.h"
#include "imbrex/runtime/device.h"
#include "ir/ir.h"

namespace imbrex::runtime {

struct TunedRecord {
  std::vector<int64_t> shape;
  std::map<std::string, int64_t> sizes;  ///< the same, as a registered kernel names it
  std::string code;    ///< code_digest() of the kernel's default configuration, traced for that shape
  std::string config;  ///< TuningSpace::to_string
  double microseconds = 0;
  bool is_modelled = false;
};

/// The device of a result as keys have it. Predictions hold for the numbers of the model they were made with, so a virtual GPU's
/// name has their digest behind it; `model` is not looked at where the device is not virtual.
std::string tuned_on(const std::string& device, bool is_virtual, const GpuModel& model);
/// With the model that stands for the device's target.
std::string tuned_on(const Device& device);

/// The key of a kernel's result for a shape; `device` is tuned_on(); `code` is the code_digest() of the kernel that was tuned.
CacheKey tuned_key(const std::string& type_name, const std::string& target, const std::string& device,
                   std::span<const int64_t> shape, const std::string& code);
/// Stores, over what was there.
void store_tuned(Cache& cache, const CacheKey& key, const TunedRecord& record);
/// What was stored under `key`, if anything.
std::optional<TunedRecord> load_tuned(Cache& cache, const CacheKey& key);
/// Every result of a kernel on a device, which is tuned_on().
std::vector<TunedRecord> all_tuned(const Cache& cache, const std::string& type_name,
                                   const std::string& target, const std::string& device);

/// The record's configuration; nothing where the kernel's tuned members are no longer those that it names.
std::optional<Configuration> configuration_of(const TunedRecord& record, const TuningSpace& space);

/// The records from nearest to farthest: by the sum of |log2| of the ratios of their integers, where all
/// other compile-time arguments are equal. `parameters` are the kernel's.
std::vector<TunedRecord> by_distance(std::vector<TunedRecord> records, std::span<const int64_t> shape,
                                     std::span<const ParameterInfo> parameters);

/// A digest of what a traced kernel does, independent of the source lines it stands on.
std::string code_digest(const ir::Function& traced);

/// Which parameters belong to the shape of a call (see KernelBase).
bool is_in_shape(const ParameterInfo& parameter);

/// "4096,4096,1024".
std::string shape_text(std::span<const int64_t> shape);

}  // namespace imbrex::runtime
