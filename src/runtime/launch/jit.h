// SPDX-License-Identifier: Apache-2.0
// From a traced kernel to a launch: compile, load; check the call, evaluate the host program, launch.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "codegen/compiled_kernel.h"
#include "imbrex/runtime/device_tensor.h"
#include "imbrex/runtime/kernel.h"
#include "ir/ir.h"
#include "runtime/device/backend.h"
#include "runtime/launch/address_parts.h"

namespace imbrex::runtime {

/// A kernel compiled for one set of constants and loaded on one device.
class JitKernel {
 public:
  /// `parameters` are the kernel's, constants included: pointers without a type take any tensor.
  JitKernel(Device device, std::shared_ptr<ir::Function> function, std::span<const ParameterInfo> parameters);

  const codegen::CompiledKernel& compiled() const { return compiled_; }
  /// Checks the arguments and launches on a stream of the device. LaunchError names the argument and the kernel's
  /// line.
  LaunchReport launch(std::span<const LaunchArgument> arguments, bool timed, CUstream_st* stream,
                      SourceLocation where);

 private:
  void check(std::span<const LaunchArgument> arguments) const;
  void check_buffers(std::span<const LaunchArgument> arguments) const;
  void check_strides(const codegen::BufferNeed& need, const DeviceTensor& tensor) const;
  /// A launch from the beginning: everything is checked and computed.
  void prepare(std::span<const LaunchArgument> arguments);
  /// Where the arguments differ from those of the last launch in their addresses alone, and nothing is wrong with them:
  /// brings what was prepared up to them. False where they are to be prepared.
  bool prepare_addresses(std::span<const LaunchArgument> arguments);
  /// "kernel: argument 4 (a_ptr)", counted as the caller does.
  std::string argument_text(size_t i) const;

  Device device_;
  codegen::CompiledKernel compiled_;
  std::shared_ptr<LoadedKernel> loaded_;
  std::vector<size_t> positions_;  // of the run-time arguments among all, from 1
  AddressParts address_parts_;
  // What the last launch was made of, for a warm one to change as little as it can. Guarded by mutex_.
  std::mutex mutex_;
  bool is_prepared_ = false;  // what follows is that of a launch; not where the last one threw
  std::vector<int64_t> values_, slots_;
  std::vector<std::byte> params_;
  LaunchPlan plan_;
};

}  // namespace imbrex::runtime
