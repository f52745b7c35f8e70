// SPDX-License-Identifier: Apache-2.0
// The interface of devices, implemented by virtual_device.cpp and cuda_device.cpp. Addresses are the
// device's, sizes in bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "codegen/compiled_kernel.h"
#include "imbrex/runtime/device.h"

namespace imbrex::runtime {

struct CUstream_st;  // the CUDA driver's

/// A kernel loaded on one device.
class LoadedKernel {
 public:
  virtual ~LoadedKernel() = default;
};

/// One launch, with everything computed.
struct LaunchPlan {
  int64_t grid[3] = {1, 1, 1};        ///< in CTAs
  std::span<const std::byte> params;  ///< the parameter buffer, laid out as CompiledKernel::params says
  bool timed = false;                 ///< measure device time, which waits for the kernel's end
};

class DeviceBackend {
 public:
  virtual ~DeviceBackend() = default;

  // As of Device.
  virtual bool is_virtual() const = 0;
  virtual std::string name() const = 0;
  virtual std::string target() const = 0;
  virtual int multiprocessors() const = 0;
  virtual void synchronize() = 0;

  virtual uint64_t allocate(int64_t bytes) = 0;
  virtual void free(uint64_t address) noexcept = 0;
  virtual void copy_to_device(uint64_t to, const void* from, int64_t bytes) = 0;
  virtual void copy_from_device(void* to, uint64_t from, int64_t bytes) = 0;
  virtual void fill(uint64_t to, uint8_t value, int64_t bytes) = 0;

  virtual std::shared_ptr<LoadedKernel> load(const codegen::CompiledKernel& kernel) = 0;
  virtual LaunchReport launch(LoadedKernel& kernel, const LaunchPlan& plan) = 0;

  // What measuring needs, on the device's stream; InternalError (or nothing) on the virtual GPU.
  /// Notes the time when everything before has ended. Marks are numbered by the caller, from 0.
  virtual void mark(size_t number);
  /// Waits for both marks.
  virtual double milliseconds_between(size_t first, size_t last);
  virtual void copy_on_device(uint64_t to, uint64_t from, int64_t bytes);
  virtual int64_t l2_bytes() const { return 0; }
  virtual CUstream_st* stream() const { return nullptr; }

  /// Writes the 128-byte descriptor of `plan` with the slots' values filled in.
  virtual void encode_tensor_map(const codegen::TensorMapPlan& plan, std::span<const int64_t> slots,
                                 void* out) = 0;
};

std::shared_ptr<DeviceBackend> make_virtual_device(vgpu::Options options);
std::shared_ptr<DeviceBackend> make_cuda_device(int ordinal);
/// The virtual GPU of a backend made by make_virtual_device.
vgpu::VirtualGpu& virtual_machine(DeviceBackend& backend);

}  // namespace imbrex::runtime
