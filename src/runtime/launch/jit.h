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

namespace imbrex::runtime {

/// A kernel compiled for one set of constants and loaded on one device.
class JitKernel {
 public:
  /// `parameters` are the kernel's, constants included: pointers without a type take any tensor.
  JitKernel(Device device, std::shared_ptr<ir::Function> function, std::span<const ParameterInfo> parameters);

  const codegen::CompiledKernel& compiled() const { return compiled_; }
  /// Checks the arguments and launches on a stream of the device. LaunchError names the argument and the kernel's
  /// line.
  LaunchReport launch(std::span<const LaunchArgument> arguments, bool timed, CUstream_st* stream);

 private:
  void check(std::span<const LaunchArgument> arguments) const;
  void check_buffers(std::span<const LaunchArgument> arguments) const;
  void check_strides(const codegen::BufferNeed& need, const DeviceTensor& tensor) const;
  /// "kernel: argument 4 (a_ptr)", counted as the caller does.
  std::string argument_text(size_t i) const;

  Device device_;
  codegen::CompiledKernel compiled_;
  std::shared_ptr<LoadedKernel> loaded_;
  std::vector<size_t> positions_;  // of the run-time arguments among all, from 1
  // Scratch of a launch, kept so that a warm launch allocates nothing. Guarded by mutex_.
  std::mutex mutex_;
  std::vector<int64_t> values_, slots_;
  std::vector<int64_t> packed_;  // the slots that params_ was made of, if is_packed_
  bool is_packed_ = false;
  std::vector<std::byte> params_;
};

}  // namespace imbrex::runtime
