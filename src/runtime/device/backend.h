// SPDX-License-Identifier: Apache-2.0
// The interface of devices, implemented by virtual_device.cpp and cuda_device.cpp. Addresses are the
// device's, sizes in bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "codegen/compiled_kernel.h"
#include "imbrex/core/source_location.h"
#include "imbrex/runtime/device.h"
#include "imbrex/vgpu/virtual_gpu.h"
#include "runtime/device/scratch_pool.h"
#include "runtime/device/strides.h"

namespace imbrex::runtime {

struct CUstream_st;  // the CUDA driver's
class Machine;       // runtime/device/machine.h

/// A kernel loaded on one device.
class LoadedKernel {
 public:
  virtual ~LoadedKernel() = default;
};

/// PTX of any compiler, loaded on one device.
class LoadedModule {
 public:
  virtual ~LoadedModule() = default;
  vgpu::Module facts;  ///< its kernels and their parameters
};

/// One launch, with everything computed.
struct LaunchPlan {
  int64_t grid[3] = {1, 1, 1};        ///< in CTAs
  std::span<const std::byte> params;  ///< the parameter buffer, laid out as CompiledKernel::params says
  bool timed = false;                 ///< measure device time, which waits for the kernel's end
  CUstream_st* stream = nullptr;      ///< as everywhere here: null is CUDA's default stream
  SourceLocation where = {};  ///< of the call, for what the virtual GPU finds about the order of calls
};

/// The stream of a copy, and the caller's line, for the same.
struct OnStream {
  OnStream(CUstream_st* of_device, SourceLocation caller = {}) : stream(of_device), where(caller) {}
  CUstream_st* stream;
  SourceLocation where;
};

/// A point in a stream.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
  virtual void record(CUstream_st* stream) = 0;
  /// What comes after on the stream waits for the event.
  virtual void hold(CUstream_st* stream) = 0;
  virtual void synchronize() = 0;
  /// Waits for this event; `earlier` is one of the same device.
  virtual double milliseconds_since(DeviceEvent& earlier) = 0;
};

/// Where a tensor map has its address: in its first 64 bits and nowhere else, or in some other way.
enum class AddressWord : uint8_t { kUnknown, kFirst, kElsewhere };

/// What was captured from a stream.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  virtual LaunchReport launch(CUstream_st* stream) = 0;
};

/// Bounds waits for a device whose kernels may wait for something for ever: for kernels on other GPUs.
class WaitBound {
 public:
  virtual ~WaitBound() = default;
  /// Returns when `has_ended` does true. Any thread may call it. DeviceError where it had to end what is waited for.
  virtual void wait_until(const std::function<bool()>& has_ended) = 0;
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
  /// Waits where something on the device may still use the memory.
  virtual void free(uint64_t address, SourceLocation where = {}) noexcept = 0;
  /// DeviceError where the virtual GPU sees that something may still use the memory, which is about to be freed.
  virtual void check_unused(uint64_t, int64_t, SourceLocation) {}
  /// LaunchError unless kernels of the device can use these bytes, as far as that can be known.
  virtual void check_memory(uint64_t address, int64_t bytes) const = 0;

  // In the order of the stream, without waiting. The virtual GPU throws DeviceError where the call races with another.
  virtual void start_copy_to_device(uint64_t to, const void* from, int64_t bytes, OnStream on) = 0;
  virtual void start_copy_from_device(void* to, uint64_t from, int64_t bytes, OnStream on) = 0;
  virtual void start_copy_on_device(uint64_t to, uint64_t from, int64_t bytes, OnStream on) = 0;
  virtual void start_fill(uint64_t to, uint8_t value, int64_t bytes, OnStream on) = 0;
  // The same for rows, one by one where a device knows no better.
  virtual void start_rows_to_device(uint64_t to, const void* from, const ByteRows& rows, OnStream on);
  virtual void start_rows_from_device(void* to, uint64_t from, const ByteRows& rows, OnStream on);
  virtual void start_rows_on_device(uint64_t to, uint64_t from, const ByteRows& rows, OnStream on);
  virtual void start_fill_rows(uint64_t to, uint8_t value, const ByteRows& rows, OnStream on);

  // On the device's own stream; those that involve the host wait.
  void copy_to_device(uint64_t to, const void* from, int64_t bytes,
                      SourceLocation where = SourceLocation::current());
  void copy_from_device(void* to, uint64_t from, int64_t bytes,
                        SourceLocation where = SourceLocation::current());
  void copy_on_device(uint64_t to, uint64_t from, int64_t bytes,
                      SourceLocation where = SourceLocation::current());
  void fill(uint64_t to, uint8_t value, int64_t bytes, SourceLocation where = SourceLocation::current());

  // Streams and events. The virtual GPU executes each call at once, and judges what streams leave unordered.
  virtual CUstream_st* stream() const { return nullptr; }  ///< the device's own
  virtual CUstream_st* create_stream() { return nullptr; }
  virtual void destroy_stream(CUstream_st*) noexcept {}
  /// As Stream::adopt.
  virtual void check_adopted(CUstream_st* stream) const = 0;
  virtual void synchronize(CUstream_st* stream) = 0;
  virtual bool is_capturing(CUstream_st*) const { return false; }
  /// Whether everything on the stream has ended; without waiting. DeviceError when any of it failed.
  virtual bool has_ended(CUstream_st*) { return true; }
  /// Symmetric memory of a group of ranks, whichever GPUs it lies on: kernels of this device may use it.
  virtual void add_symmetric(uint64_t, uint64_t) {}
  /// From here on calls that wait for the device wait by `bound` first, as long as it lives. The virtual GPU never waits.
  virtual void add_wait_bound(const std::shared_ptr<WaitBound>&) {}
  /// For who is about to call something that may wait for the stream: waits for it where there is a bound.
  virtual void before_wait(CUstream_st*) {}
  /// CUDA's number of the device; -1 on the virtual GPU.
  virtual int ordinal() const { return -1; }
  /// What is put on the stream from here on is recorded; LaunchError where it cannot be.
  virtual void begin_capture(CUstream_st* stream);
  /// DeviceError where something was called that a capture does not bear.
  virtual std::unique_ptr<DeviceGraph> end_capture(CUstream_st* stream);
  virtual std::unique_ptr<DeviceEvent> create_event() = 0;

  // Scratch memory (Workspace).
  ScratchPool& scratch() { return scratch_; }
  /// A number that no other stream has or will have.
  virtual uint64_t number_of_stream(CUstream_st* stream) = 0;
  /// Memory of the graph that the stream is being captured into.
  virtual uint64_t allocate_in_capture(int64_t bytes, CUstream_st* stream);
  virtual void free_in_capture(uint64_t, CUstream_st*) noexcept {}
  /// What the virtual GPU is told: contents are undefined from here on; nobody may use the memory any more.
  virtual void scratch_taken(uint64_t, int64_t, OnStream) {}
  virtual void scratch_given_back(uint64_t, int64_t, OnStream) noexcept {}

  virtual std::shared_ptr<LoadedKernel> load(const codegen::CompiledKernel& kernel) = 0;
  /// The same without its PTX, of which only the SHA-256 is known, where its machine code is at hand; else null.
  virtual std::shared_ptr<LoadedKernel> load_at_hand(const codegen::CompiledKernel&, const std::string&) {
    return nullptr;
  }
  virtual LaunchReport launch(LoadedKernel& kernel, const LaunchPlan& plan) = 0;

  /// `name` stands for the text in messages.
  virtual std::shared_ptr<LoadedModule> load_ptx(const std::string& ptx, const std::string& name) = 0;
  /// `launch` has its arguments, in one of the two ways.
  virtual LaunchReport launch_ptx(LoadedModule& module, const std::string& kernel, const vgpu::Launch& launch,
                                  CUstream_st* stream) = 0;

  // What measuring needs, on the device's own stream; InternalError (or nothing) on the virtual GPU.
  /// Notes the time when everything before has ended. Marks are numbered by the caller, from 0.
  virtual void mark(size_t number);
  /// Waits for both marks.
  virtual double milliseconds_between(size_t first, size_t last);
  virtual int64_t l2_bytes() const { return 0; }

  /// Writes the 128-byte descriptor of `plan` with the slots' values filled in.
  virtual void encode_tensor_map(const codegen::TensorMapPlan& plan, std::span<const int64_t> slots,
                                 void* out) = 0;
  /// The same where `out` is the descriptor of the same plan and slots but for the address. `word`: what is known of this
  /// descriptor, from one such call to the next.
  virtual void move_tensor_map(const codegen::TensorMapPlan& plan, std::span<const int64_t> slots, void* out,
                               AddressWord&) {
    encode_tensor_map(plan, slots, out);
  }

 private:
  ScratchPool scratch_;
};

std::shared_ptr<DeviceBackend> make_virtual_device(vgpu::Options options);
/// The device of a machine, whose calls take turns with those of other devices that share `turn`.
std::shared_ptr<DeviceBackend> make_virtual_device(std::shared_ptr<Machine> machine,
                                                   std::shared_ptr<std::mutex> turn);
/// The device of a GPU's primary context, and that of the context current on this thread. One context has one
/// device, which lives as long as the process.
std::shared_ptr<DeviceBackend> cuda_device(int ordinal);
std::shared_ptr<DeviceBackend> current_cuda_device();
/// The virtual GPU of a backend made by make_virtual_device. LaunchError where it is in another process.
vgpu::VirtualGpu& virtual_machine(DeviceBackend& backend);
/// How a virtual GPU was made, whichever process it is in.
const vgpu::Options& virtual_options(DeviceBackend& backend);

}  // namespace imbrex::runtime
