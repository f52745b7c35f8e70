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
  /// Without tracing, where the plan of a kernel with this identity and its machine code are kept; else null.
  static std::unique_ptr<JitKernel> kept(const Device& device, const std::string& identity,
                                         const std::string& target,
                                         std::span<const ParameterInfo> parameters);

  const codegen::CompiledKernel& compiled() const { return compiled_; }
  /// Checks the arguments and launches on a stream of the device. LaunchError names the argument and the kernel's
  /// line.
  LaunchReport launch(std::span<const LaunchArgument> arguments, bool timed, CUstream_st* stream,
                      SourceLocation where);

 private:
  JitKernel(Device device, codegen::CompiledKernel compiled, std::span<const ParameterInfo> parameters);
  void check(std::span<const LaunchArgument> arguments) const;
  void check_buffers(std::span<const LaunchArgument> arguments) const;
  void check_strides(const codegen::BufferNeed& need, const DeviceTensor& tensor) const;
  /// A launch from the beginning: everything is checked and computed.
  void prepare(std::span<const LaunchArgument> arguments);
  /// "called with m = 5, n = 0", for messages about the grid; nothing of a kernel without integer parameters.
  std::vector<std::string> integers_given() const;
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
  /// What a launch was made of, for another one with the same numbers to change as little as it can.
  struct Prepared {
    bool is_ready = false;  // what follows is that of a launch; not where it threw
    std::vector<int64_t> values, slots;
    std::vector<std::byte> params;
    LaunchPlan plan;
  };
  /// That of the last launch with these numbers, else one to be prepared.
  Prepared& prepared_for(std::span<const LaunchArgument> arguments);

  // Guarded by mutex_. A kernel that serves all sizes is launched with several in turn.
  std::mutex mutex_;
  static constexpr size_t kMostPrepared = 64;
  std::vector<std::unique_ptr<Prepared>> prepared_;
  size_t oldest_ = 0;
  Prepared* now_ = nullptr;  // of this launch, and then of the last one
};

}  // namespace imbrex::runtime
