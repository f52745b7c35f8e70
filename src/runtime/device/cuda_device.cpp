// SPDX-License-Identifier: Apache-2.0
// A CUDA GPU through its driver.
#include <fmt/format.h>

#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "core/sha256.h"
#include "imbrex/core/error.h"
#include "runtime/device/backend.h"
#include "runtime/device/cuda_event.h"
#include "runtime/device/cuda_graph.h"
#include "runtime/device/cuda_module.h"
#include "runtime/device/device_facts.h"
#include "runtime/device/launch_pace.h"
#include "runtime/device/module_loader.h"
#include "runtime/device/symmetric_ranges.h"
#include "runtime/device/wait_bounds.h"
#include "runtime/driver/context_scope.h"
#include "runtime/driver/cuda_driver.h"

namespace imbrex::runtime {
namespace {

class CudaDevice : public DeviceBackend, public OwnedModule::Owner {
 public:
  CudaDevice(const CudaDriver& driver, CUdevice device, CUcontext context)
      : driver_(&driver), device_(device), context_(context), loader_(driver) {
    const ContextScope scope = current();
    driver_->check(driver_->cuStreamCreate(&stream_, kStreamNonBlocking), "stream");
    for (CUevent& event : events_) driver_->check(driver_->cuEventCreate(&event, 0), "event");
    char name[256] = {};
    driver_->check(driver_->cuDeviceGetName(name, sizeof name, device_), "device name");
    name_ = name;
    major_ = attribute(kDeviceAttributeComputeCapabilityMajor);
    minor_ = attribute(kDeviceAttributeComputeCapabilityMinor);
    target_ = target_of(major_, minor_);
  }

  bool is_virtual() const override { return false; }
  std::string name() const override { return name_; }
  std::string target() const override { return target_; }
  int multiprocessors() const override { return attribute(kDeviceAttributeMultiprocessorCount); }
  void synchronize() override {
    before_wait(stream_);
    const ContextScope scope = current();
    driver_->check(driver_->cuCtxSynchronize(), "kernel execution");
  }

  uint64_t allocate(int64_t bytes) override {
    const ContextScope scope = current();
    CUdeviceptr address = 0;
    driver_->check(driver_->cuMemAlloc(&address, bytes), fmt::format("allocation of {} bytes", bytes));
    return address;
  }
  void free(uint64_t address, SourceLocation) noexcept override {
    when_idle([&] { driver_->cuMemFree(address); });
  }
  int ordinal() const override { return device_; }
  void add_symmetric(uint64_t address, uint64_t bytes) override { symmetric_.add(address, bytes); }
  void add_wait_bound(const std::shared_ptr<WaitBound>& bound) override { bounds_.add(bound); }
  // The driver waits for all kernels that run where it frees memory, loads and unloads modules, and where the queue of
  // launches is full; while it does the former no thread gets anything done in this context, not even what would end the
  // kernels (docs/measurements/2026-11-25-driver-waits.md). So where they may wait for other GPUs, they are waited for before.
  void before_wait(CUstream stream) override {
    if (bounds_.may_be_bounded() && !is_capturing(stream))
      bounds_.wait_until([this, stream] { return has_ended(stream); });
  }
  bool has_ended(CUstream_st* stream) override {
    const ContextScope scope = current();
    const CUresult result = driver_->cuStreamQuery(stream);
    if (result == kErrorNotReady) return false;
    driver_->check(result, "kernel execution");
    return true;
  }
  void check_memory(uint64_t address, int64_t) const override {
    if (symmetric_.contains(address)) return;
    const ContextScope scope = current();
    unsigned type = 0, is_managed = 0;
    int ordinal = 0;
    int which[] = {kPointerAttributeMemoryType, kPointerAttributeIsManaged, kPointerAttributeDeviceOrdinal};
    void* values[] = {&type, &is_managed, &ordinal};
    driver_->check(driver_->cuPointerGetAttributes(3, which, values, address), "looking up an address");
    if (type == 0 && attribute(kDeviceAttributePageableMemoryAccess) == 0)
      throw LaunchError(Diagnostic{{},
                                   fmt::format("0x{:x} is not memory that CUDA allocated", address),
                                   {},
                                   "it is host memory, or was freed: pass an address of device memory"});
    if (type == kMemoryTypeDevice && is_managed == 0 && ordinal != device_)
      throw LaunchError(
          Diagnostic{{},
                     fmt::format("0x{:x} is memory of CUDA device {}, not {}", address, ordinal, device_),
                     {},
                     "make the tensor on the device that has the memory"});
  }

  // On a stream even where the host waits: the synchronous copy returns while its last part is still under way,
  // and is not ordered with kernels on streams like ours.
  void start_copy_to_device(uint64_t to, const void* from, int64_t bytes, OnStream on) override {
    const ContextScope scope = current();
    driver_->check(driver_->cuMemcpyHtoDAsync(to, from, bytes, on.stream), "copy to device");
  }
  void start_copy_from_device(void* to, uint64_t from, int64_t bytes, OnStream on) override {
    const ContextScope scope = current();
    driver_->check(driver_->cuMemcpyDtoHAsync(to, from, bytes, on.stream), "copy from device");
  }
  void start_copy_on_device(uint64_t to, uint64_t from, int64_t bytes, OnStream on) override {
    const ContextScope scope = current();
    driver_->check(driver_->cuMemcpyDtoDAsync(to, from, bytes, on.stream), "copy on the device");
  }
  void start_fill(uint64_t to, uint8_t value, int64_t bytes, OnStream on) override {
    const ContextScope scope = current();
    driver_->check(driver_->cuMemsetD8Async(to, value, bytes, on.stream), "fill");
  }
  void start_rows_to_device(uint64_t to, const void* from, const ByteRows& rows, OnStream on) override {
    if (!copy_rows({.from_type = kMemoryTypeHost, .from_host = from, .to_type = kMemoryTypeUnified, .to = to},
                   rows, on.stream))
      DeviceBackend::start_rows_to_device(to, from, rows, on);
  }
  void start_rows_from_device(void* to, uint64_t from, const ByteRows& rows, OnStream on) override {
    if (!copy_rows({.from_type = kMemoryTypeUnified, .from = from, .to_type = kMemoryTypeHost, .to_host = to},
                   rows, on.stream))
      DeviceBackend::start_rows_from_device(to, from, rows, on);
  }
  void start_rows_on_device(uint64_t to, uint64_t from, const ByteRows& rows, OnStream on) override {
    if (!copy_rows({.from_type = kMemoryTypeUnified, .from = from, .to_type = kMemoryTypeUnified, .to = to},
                   rows, on.stream))
      DeviceBackend::start_rows_on_device(to, from, rows, on);
  }
  void start_fill_rows(uint64_t to, uint8_t value, const ByteRows& rows, OnStream on) override {
    if (!has_pitches(rows)) return DeviceBackend::start_fill_rows(to, value, rows, on);
    const ContextScope scope = current();
    driver_->check(driver_->cuMemsetD2D8Async(to, rows.to_pitch, value, rows.width, rows.height, on.stream),
                   "fill");
  }

  CUstream stream() const override { return stream_; }
  CUstream create_stream() override {
    const ContextScope scope = current();
    CUstream stream = nullptr;
    driver_->check(driver_->cuStreamCreate(&stream, kStreamNonBlocking), "stream");
    return stream;
  }
  void destroy_stream(CUstream stream) noexcept override {
    try {
      scratch().forget(*this, number_of_stream(stream));
      const ContextScope scope = current();
      driver_->cuStreamDestroy(stream);
    } catch (const Error&) {
      // The context is gone, and the stream with it.
    }
  }
  void check_adopted(CUstream stream) const override {
    constexpr uintptr_t kPerThread =
        2;  // null, 1 and 2 are the default streams of whatever context is current
    if (reinterpret_cast<uintptr_t>(stream) <= kPerThread) return;
    const ContextScope scope = current();
    CUcontext context = nullptr;
    const CUresult result = driver_->cuStreamGetCtx(stream, &context);
    if (result == 0 && context == context_) return;
    throw LaunchError(Diagnostic{
        {},
        fmt::format("Stream::adopt: stream 0x{:x} is {}", reinterpret_cast<uintptr_t>(stream),
                    result == 0 ? fmt::format("not of the context of '{}'", name_)
                                : fmt::format("refused by the driver: {}", driver_->describe(result))),
        {},
        "adopt a live stream of the device's own context: Device::current() is the device of the current "
        "one"});
  }
  void synchronize(CUstream stream) override {
    before_wait(stream);
    const ContextScope scope = current();
    driver_->check(driver_->cuStreamSynchronize(stream), "kernel execution");
  }
  bool is_capturing(CUstream stream) const override {
    const ContextScope scope = current();
    int status = 0;
    driver_->check(driver_->cuStreamIsCapturing(stream, &status), "capture status of a stream");
    return status != 0;
  }
  void begin_capture(CUstream stream) override {
    const ContextScope scope = current();
    const CUresult result = driver_->cuStreamBeginCapture(stream, kCaptureModeThreadLocal);
    if (result != 0)
      throw LaunchError(
          Diagnostic{{},
                     "Graph::capture: refused by the driver: " + driver_->describe(result),
                     {},
                     "capture a stream of Stream::create, or one of the program's own; the legacy "
                     "default stream cannot be captured"});
  }
  std::unique_ptr<DeviceGraph> end_capture(CUstream stream) override {
    const ContextScope scope = current();
    CUgraph graph = nullptr;
    driver_->check(driver_->cuStreamEndCapture(stream, &graph), "end of a capture");
    return std::make_unique<CudaGraph>(*driver_, context_, graph);
  }
  uint64_t number_of_stream(CUstream stream) override {
    const ContextScope scope = current();
    unsigned long long number = 0;
    driver_->check(driver_->cuStreamGetId(stream, &number), "number of a stream");
    return number;
  }
  uint64_t allocate_in_capture(int64_t bytes, CUstream stream) override {
    const ContextScope scope = current();
    CUdeviceptr address = 0;
    driver_->check(driver_->cuMemAllocAsync(&address, bytes, stream),
                   fmt::format("allocation of {} bytes in a CUDA graph", bytes));
    return address;
  }
  void free_in_capture(uint64_t address, CUstream stream) noexcept override {
    try {
      const ContextScope scope = current();
      driver_->cuMemFreeAsync(address, stream);
    } catch (const Error&) {
      // The context is gone, and its memory with it.
    }
  }
  std::unique_ptr<DeviceEvent> create_event() override {
    return std::make_unique<CudaEvent>(*driver_, context_);
  }

  std::shared_ptr<LoadedKernel> load(const codegen::CompiledKernel& kernel) override {
    before_wait(stream_);
    const ContextScope scope = current();
    auto loaded = std::make_shared<CudaKernel>(*this, kernel);
    if (!loader_.load_at_hand(kernel, sha256(kernel.ptx), target_, loaded->module.handle))
      loader_.assemble(kernel, target_, loaded->module.handle);
    return ready(std::move(loaded));
  }

  std::shared_ptr<LoadedKernel> load_at_hand(const codegen::CompiledKernel& kernel,
                                             const std::string& ptx_digest) override {
    before_wait(stream_);
    const ContextScope scope = current();
    auto loaded = std::make_shared<CudaKernel>(*this, kernel);
    const bool is_loaded = loader_.load_at_hand(kernel, ptx_digest, target_, loaded->module.handle);
    return is_loaded ? ready(std::move(loaded)) : nullptr;
  }

  LaunchReport launch(LoadedKernel& loaded, const LaunchPlan& plan) override {
    auto& kernel = static_cast<CudaKernel&>(loaded);
    const ContextScope scope = current();
    std::unique_lock timing(timing_, std::defer_lock);  // events_ time one launch at a time
    if (plan.timed) timing.lock();
    kernel.config.stream = plan.stream;
    for (int i = 0; i < 3; ++i) kernel.config.grid[i] = static_cast<unsigned>(plan.grid[i]);
    // One by one: only the driver knows where the device has parameters that are aligned to 64 bytes, as
    // tensor maps are, because the memory they lie in does not begin at such an address.
    if (kernel.buffer != plan.params.data()) {
      kernel.buffer = plan.params.data();
      for (size_t i = 0; i < kernel.params.size(); ++i)
        kernel.params[i] = const_cast<std::byte*>(kernel.buffer) + kernel.kernel.params[i].offset;
    }
    keep_pace(plan.stream);
    if (plan.timed) driver_->check(driver_->cuEventRecord(events_[0], plan.stream), "event");
    const CUresult result =
        driver_->cuLaunchKernelEx(&kernel.config, kernel.function, kernel.params.data(), nullptr);
    if (result == kErrorInvalidValue || result == kErrorOutOfResources)  // the device still works
      throw LaunchError(
          Diagnostic{kernel.kernel.where,
                     fmt::format("launch of {}: {}", kernel.kernel.name, driver_->describe(result)),
                     {fmt::format("{} threads, {} bytes of shared memory per CTA", kernel.kernel.threads,
                                  kernel.kernel.shared_bytes)},
                     "the GPU lacks the resources for one CTA: use smaller tiles or fewer warps"});
    if (result != 0) driver_->check(result, "launch of " + kernel.kernel.name);
    LaunchReport report;
    if (plan.timed) {
      driver_->check(driver_->cuEventRecord(events_[1], plan.stream), "event");
      before_wait(plan.stream);
      driver_->check(driver_->cuEventSynchronize(events_[1]), "execution of " + kernel.kernel.name);
      float milliseconds = 0;
      driver_->check(driver_->cuEventElapsedTime(&milliseconds, events_[0], events_[1]), "elapsed time");
      report.milliseconds = milliseconds;
    }
    return report;
  }

  std::shared_ptr<LoadedModule> load_ptx(const std::string& ptx, const std::string& name) override {
    auto loaded = std::make_shared<CudaModule>(*this, target());
    loaded->facts = loaded->reader.load_module(ptx, name);
    before_wait(stream_);
    const ContextScope scope = current();
    driver_->check(driver_->cuModuleLoadDataEx(&loaded->module.handle, ptx.c_str(), 0, nullptr, nullptr),
                   "loading " + name);
    return loaded;
  }

  LaunchReport launch_ptx(LoadedModule& module, const std::string& kernel, const vgpu::Launch& launch,
                          CUstream stream) override {
    const ContextScope scope = current();
    CUfunction function = nullptr;
    {
      auto& loaded = static_cast<CudaModule&>(module);
      const std::lock_guard lock(loaded.mutex);
      CudaModule::Known& known = loaded.known[kernel];
      if (known.function == nullptr)
        driver_->check(driver_->cuModuleGetFunction(&known.function, loaded.module.handle, kernel.c_str()),
                       "kernel " + kernel);
      if (launch.dynamic_shared_bytes > known.dynamic_shared_bytes) {
        driver_->check(
            driver_->cuFuncSetAttribute(known.function, kFunctionAttributeMaxDynamicShared,
                                        static_cast<int>(launch.dynamic_shared_bytes)),
            fmt::format("{} bytes of dynamic shared memory for {}", launch.dynamic_shared_bytes, kernel));
        known.dynamic_shared_bytes = launch.dynamic_shared_bytes;
      }
      function = known.function;
    }
    CUlaunchConfig config = {};
    CUlaunchAttribute cluster;
    const int64_t grid[] = {launch.grid.x, launch.grid.y, launch.grid.z},
                  block[] = {launch.block.x, launch.block.y, launch.block.z},
                  ctas[] = {launch.cluster.x, launch.cluster.y, launch.cluster.z};
    for (int i = 0; i < 3; ++i) {
      config.grid[i] = static_cast<unsigned>(grid[i]);
      config.block[i] = static_cast<unsigned>(block[i]);
      cluster.value.cluster[i] = static_cast<unsigned>(ctas[i]);
    }
    config.shared_bytes = static_cast<unsigned>(launch.dynamic_shared_bytes);
    config.stream = stream;
    if (launch.cluster.count() > 1) {
      cluster.id = kLaunchAttributeClusterDimension;
      config.attributes = &cluster;
      config.attribute_count = 1;
    }
    // With a buffer each parameter is a pointer into it.
    std::vector<void*> params(launch.arguments.begin(), launch.arguments.end());
    if (!launch.parameter_buffer.empty())
      for (const vgpu::Parameter& parameter : module.facts.function(kernel).parameters())
        params.push_back(const_cast<std::byte*>(launch.parameter_buffer.data()) + parameter.offset);
    const CUresult result = driver_->cuLaunchKernelEx(&config, function, params.data(), nullptr);
    if (result == kErrorInvalidValue || result == kErrorOutOfResources)
      throw LaunchError(Diagnostic{
          {},
          fmt::format("launch of {}: {}", kernel, driver_->describe(result)),
          {fmt::format("{} threads, {} bytes of dynamic shared memory per CTA", launch.block.count(),
                       launch.dynamic_shared_bytes)},
          "the GPU refuses this grid, block or cluster: see the limits of its compute capability"});
    if (result != 0) driver_->check(result, "launch of " + kernel);
    return {};
  }

  void mark(size_t number) override {
    const ContextScope scope = current();
    while (marks_.size() <= number) {
      marks_.emplace_back();
      driver_->check(driver_->cuEventCreate(&marks_.back(), 0), "event");
    }
    driver_->check(driver_->cuEventRecord(marks_[number], stream_), "event");
  }
  double milliseconds_between(size_t first, size_t last) override {
    const ContextScope scope = current();
    float milliseconds = 0;
    driver_->check(driver_->cuEventSynchronize(marks_[last]), "kernel execution");
    driver_->check(driver_->cuEventElapsedTime(&milliseconds, marks_[first], marks_[last]), "elapsed time");
    return milliseconds;
  }
  int64_t l2_bytes() const override { return attribute(kDeviceAttributeL2CacheSize); }

  void encode_tensor_map(const codegen::TensorMapPlan& plan, std::span<const int64_t> slots,
                         void* out) override {
    const ContextScope scope = current();  // the thread may be new to the device
    TiledTensorMap map{.type = static_cast<int>(plan.driver_type),
                       .rank = static_cast<uint32_t>(plan.rank),
                       .address = static_cast<CUdeviceptr>(slots[plan.base_slot]),
                       .interleave = static_cast<int>(plan.interleave),
                       .swizzle = static_cast<int>(plan.swizzle),
                       .l2_promotion = static_cast<int>(plan.l2_promotion),
                       .oob_fill = static_cast<int>(plan.oob_fill)};
    for (int i = 0; i < plan.rank; ++i) {
      map.dims[i] = slots[plan.dim_slots[i]];
      map.box[i] = plan.box[i];
      if (i > 0) map.strides[i - 1] = static_cast<uint64_t>(slots[plan.stride_slots[i - 1]]) / 8;
    }
    const CUresult result = driver_->encode(map, out);
    if (result != 0)
      throw LaunchError(Diagnostic{plan.where,
                                   "tensor map refused by the driver: " + driver_->describe(result),
                                   describe(plan, slots), "see the limits of cuTensorMapEncodeTiled"});
  }

  /// Encoding one takes the driver a third of a microsecond. Where it puts the address is not documented: that is tried
  /// once for each map, and if the whole object is what the driver makes of the new address, then from there on the
  /// address alone is written.
  void move_tensor_map(const codegen::TensorMapPlan& plan, std::span<const int64_t> slots, void* out,
                       AddressWord& word) override {
    const int64_t address = slots[plan.base_slot];
    const int64_t unit = plan.is_padded || plan.interleave == TensorMapInterleave::k32B ? 32 : 16;
    if (word == AddressWord::kFirst && address % unit == 0) {
      std::memcpy(out, &address, sizeof address);
      return;
    }
    std::byte moved[kTensorMapBytes];
    std::memcpy(moved, out, sizeof moved);
    const bool moves = std::memcmp(moved, &address, sizeof address) != 0;
    std::memcpy(moved, &address, sizeof address);
    encode_tensor_map(plan, slots, out);
    if (word == AddressWord::kUnknown && moves)
      word = std::memcmp(moved, out, sizeof moved) == 0 ? AddressWord::kFirst : AddressWord::kElsewhere;
  }

 private:
  static constexpr size_t kTensorMapBytes = 128;

  static std::vector<std::string> describe(const codegen::TensorMapPlan& plan,
                                           std::span<const int64_t> slots) {
    std::vector<std::string> facts{fmt::format("address 0x{:x}", slots[plan.base_slot])};
    for (int i = 0; i < plan.rank; ++i)
      facts.push_back(
          fmt::format("dimension {}: extent {}, box {}{}", i, slots[plan.dim_slots[i]], plan.box[i],
                      i == 0 ? "" : fmt::format(", stride {} bytes", slots[plan.stride_slots[i - 1]] / 8)));
    return facts;
  }

  /// Whether the driver copies such rows at once: they follow one another in both memories.
  bool has_pitches(const ByteRows& rows) const {
    const int64_t most = attribute(kDeviceAttributeMaxPitch);
    const auto is_pitch = [&](int64_t pitch) { return pitch >= rows.width && pitch <= most; };
    return is_pitch(rows.to_pitch) && is_pitch(rows.from_pitch);
  }
  bool copy_rows(CUmemcpy2D copy, const ByteRows& rows, CUstream stream) {
    if (!has_pitches(rows)) return false;
    copy.from_pitch = rows.from_pitch, copy.to_pitch = rows.to_pitch;
    copy.width = rows.width, copy.height = rows.height;
    const ContextScope scope = current();
    driver_->check(driver_->cuMemcpy2DAsync(&copy, stream), "copy of rows");
    return true;
  }

  /// A kernel whose module is loaded, with what all of its launches share. Call with the context current.
  std::shared_ptr<LoadedKernel> ready(std::shared_ptr<CudaKernel> loaded) {
    const codegen::CompiledKernel& kernel = loaded->kernel;
    driver_->check(
        driver_->cuModuleGetFunction(&loaded->function, loaded->module.handle, kernel.name.c_str()),
        "kernel " + kernel.name);
    // Asks for the function's code to be loaded now: the driver may leave that to the first launch, which a capture
    // must not wait for.
    int registers = 0;
    driver_->check(driver_->cuFuncGetAttribute(&registers, kFunctionAttributeRegisters, loaded->function),
                   "kernel " + kernel.name);
    if (kernel.shared_bytes > 48 * 1024)
      driver_->check(
          driver_->cuFuncSetAttribute(loaded->function, kFunctionAttributeMaxDynamicShared,
                                      static_cast<int>(kernel.shared_bytes)),
          fmt::format("{} bytes of dynamic shared memory for {}", kernel.shared_bytes, kernel.name));
    int cluster_size = kernel.cluster[0] * kernel.cluster[1] * kernel.cluster[2];
    if (cluster_size > 8)
      driver_->check(driver_->cuFuncSetAttribute(loaded->function, kFunctionAttributeNonPortableCluster, 1),
                     "cluster of more than 8");
    CUlaunchConfig& config = loaded->config;
    config.block[0] = kernel.threads, config.block[1] = config.block[2] = 1;
    config.shared_bytes = static_cast<unsigned>(kernel.shared_bytes);
    if (cluster_size > 1) {
      CUlaunchAttribute& cluster = loaded->attributes[config.attribute_count++];
      cluster.id = kLaunchAttributeClusterDimension;
      for (int i = 0; i < 3; ++i) cluster.value.cluster[i] = kernel.cluster[i];
    }
    if (kernel.waits_for_grids) {
      CUlaunchAttribute& early = loaded->attributes[config.attribute_count++];
      early.id = kLaunchAttributeProgrammaticStreamSerialization;
      early.value.programmatic_stream_serialization = 1;
    }
    config.attributes = loaded->attributes;
    return loaded;
  }

  int attribute(int which) const {
    int value = 0;
    driver_->check(driver_->cuDeviceGetAttribute(&value, which, device_), "device attribute");
    return value;
  }
  ContextScope current() const { return ContextScope(*driver_, context_); }

  void keep_pace(CUstream stream) {
    if (bounds_.may_be_bounded() && pace_.is_due() && !is_capturing(stream))
      pace_.keep(*driver_, context_, stream, bounds_);
  }
  /// Calls `release`, unless kernels do not end.
  template <class Release>
  void when_idle(const Release& release) noexcept {
    try {
      try {
        before_wait(stream_);
      } catch (const Error&) {
        if (!has_ended(stream_)) return;
      }
      const ContextScope scope = current();
      release();
    } catch (const Error&) {
      // The context is gone, and what it had with it.
    }
  }
  void unload(CUmodule module) noexcept override {
    when_idle([&] { driver_->cuModuleUnload(module); });
  }

  SymmetricRanges symmetric_;
  WaitBounds bounds_;
  LaunchPace pace_;
  const CudaDriver* driver_ = nullptr;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  CUevent events_[2] = {};
  std::mutex timing_;
  std::vector<CUevent> marks_;
  ModuleLoader loader_;
  std::string name_, target_;
  int major_ = 0, minor_ = 0;
};

const CudaDriver& driver_or_throw() {
  return CudaDriver::get("use the virtual GPU: Device::virtual_gpu(), --device virtual");
}

/// The device of a context, made on the first request.
std::shared_ptr<DeviceBackend> device_of(const CudaDriver& driver, CUdevice device, CUcontext context) {
  static std::mutex turn;
  // By number, for the address of a destroyed context may be another's later. Never freed: at exit the driver may be
  // unloaded first.
  static auto& devices = *new std::map<unsigned long long, std::shared_ptr<DeviceBackend>>;
  unsigned long long number = 0;
  driver.check(driver.cuCtxGetId(context, &number), "number of the CUDA context");
  const std::lock_guard lock(turn);
  std::shared_ptr<DeviceBackend>& known = devices[number];
  if (!known) known = std::make_shared<CudaDevice>(driver, device, context);
  return known;
}

}  // namespace

std::shared_ptr<DeviceBackend> cuda_device(int ordinal) {
  const CudaDriver& driver = driver_or_throw();
  CUdevice device = 0;
  CUcontext context = nullptr;
  driver.check(driver.cuDeviceGet(&device, ordinal), fmt::format("CUDA device {}", ordinal));
  driver.check(driver.cuDevicePrimaryCtxRetain(&context, device), "primary context");
  return device_of(driver, device, context);
}

std::shared_ptr<DeviceBackend> current_cuda_device() {
  const CudaDriver& driver = driver_or_throw();
  CUdevice device = 0;
  CUcontext context = nullptr;
  driver.check(driver.cuCtxGetCurrent(&context), "current CUDA context");
  if (context == nullptr)
    throw DeviceError(
        Diagnostic{{},
                   "Device::current: no CUDA context is current on this thread",
                   {},
                   "use Device::cuda(), or make one current before: cudaSetDevice, cuCtxSetCurrent"});
  driver.check(driver.cuCtxGetDevice(&device), "device of the CUDA context");
  return device_of(driver, device, context);
}

}  // namespace imbrex::runtime
