// SPDX-License-Identifier: Apache-2.0
// A CUDA GPU through its driver.
#include <fmt/format.h>

#include <cstdlib>
#include <mutex>
#include <vector>

#include "imbrex/core/error.h"
#include "runtime/assemble/assembler.h"
#include "runtime/device/backend.h"
#include "runtime/device/device_facts.h"
#include "runtime/driver/cuda_driver.h"

namespace imbrex::runtime {
namespace {

class CudaKernel : public LoadedKernel {
 public:
  CudaKernel(const CudaDriver& cuda, const codegen::CompiledKernel& compiled)
      : driver(cuda), kernel(compiled), params(compiled.params.size()) {}
  ~CudaKernel() override {
    if (module != nullptr) driver.cuModuleUnload(module);
  }

  const CudaDriver& driver;
  codegen::CompiledKernel kernel;
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  CUlaunchAttribute attributes[2];
  CUlaunchConfig config = {};
  std::vector<void*> params;  // of the launch being made
};

class CudaDevice : public DeviceBackend {
 public:
  explicit CudaDevice(int ordinal) {
    std::string why_not;
    const CudaDriver* found = CudaDriver::find(&why_not);
    if (found == nullptr)
      throw DeviceError(
          Diagnostic{{}, why_not, {}, "use the virtual GPU: Device::virtual_gpu(), --device virtual"});
    driver_ = found;
    driver_->check(driver_->cuDeviceGet(&device_, ordinal), fmt::format("CUDA device {}", ordinal));
    driver_->check(driver_->cuDevicePrimaryCtxRetain(&context_, device_), "primary context");
    driver_->check(driver_->cuCtxSetCurrent(context_), "set context");
    driver_->check(driver_->cuStreamCreate(&stream_, 1 /* non-blocking */), "stream");
    for (CUevent& event : events_) driver_->check(driver_->cuEventCreate(&event, 0), "event");
    char name[256] = {};
    driver_->check(driver_->cuDeviceGetName(name, sizeof name, device_), "device name");
    name_ = name;
    major_ = attribute(kDeviceAttributeComputeCapabilityMajor);
    minor_ = attribute(kDeviceAttributeComputeCapabilityMinor);
  }

  bool is_virtual() const override { return false; }
  std::string name() const override { return name_; }
  std::string target() const override { return target_of(major_, minor_); }
  int multiprocessors() const override { return attribute(kDeviceAttributeMultiprocessorCount); }
  void synchronize() override { driver_->check(driver_->cuStreamSynchronize(stream_), "kernel execution"); }

  uint64_t allocate(int64_t bytes) override {
    make_current();
    CUdeviceptr address = 0;
    driver_->check(driver_->cuMemAlloc(&address, bytes), fmt::format("allocation of {} bytes", bytes));
    return address;
  }
  void free(uint64_t address) noexcept override {
    driver_->cuCtxSetCurrent(context_);
    driver_->cuMemFree(address);
  }
  void copy_to_device(uint64_t to, const void* from, int64_t bytes) override {
    make_current();
    // On the device's stream: the synchronous copy returns while its last part is still under way, and is not
    // ordered with kernels on another stream.
    driver_->check(driver_->cuMemcpyHtoDAsync(to, from, bytes, stream_), "copy to device");
    synchronize();
  }
  void copy_from_device(void* to, uint64_t from, int64_t bytes) override {
    make_current();
    driver_->check(driver_->cuMemcpyDtoHAsync(to, from, bytes, stream_), "copy from device");
    synchronize();
  }
  void fill(uint64_t to, uint8_t value, int64_t bytes) override {
    make_current();
    driver_->check(driver_->cuMemsetD8Async(to, value, bytes, stream_), "fill");
  }

  std::shared_ptr<LoadedKernel> load(const codegen::CompiledKernel& kernel) override {
    make_current();
    auto loaded = std::make_shared<CudaKernel>(*driver_, kernel);
    load_module(kernel, loaded->module);
    driver_->check(driver_->cuModuleGetFunction(&loaded->function, loaded->module, kernel.name.c_str()),
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
    config.stream = stream_;
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

  LaunchReport launch(LoadedKernel& loaded, const LaunchPlan& plan) override {
    auto& kernel = static_cast<CudaKernel&>(loaded);
    make_current();
    for (int i = 0; i < 3; ++i) kernel.config.grid[i] = static_cast<unsigned>(plan.grid[i]);
    // One by one: only the driver knows where the device has parameters that are aligned to 64 bytes, as
    // tensor maps are, because the memory they lie in does not begin at such an address.
    for (size_t i = 0; i < kernel.params.size(); ++i)
      kernel.params[i] = const_cast<std::byte*>(plan.params.data()) + kernel.kernel.params[i].offset;
    if (plan.timed) driver_->check(driver_->cuEventRecord(events_[0], stream_), "event");
    const CUresult result =
        driver_->cuLaunchKernelEx(&kernel.config, kernel.function, kernel.params.data(), nullptr);
    if (result == kErrorInvalidValue || result == kErrorOutOfResources)  // the device still works
      throw LaunchError(
          Diagnostic{kernel.kernel.where,
                     fmt::format("launch of {}: {}", kernel.kernel.name, driver_->describe(result)),
                     {fmt::format("{} threads, {} bytes of shared memory per CTA", kernel.kernel.threads,
                                  kernel.kernel.shared_bytes)},
                     "the GPU lacks the resources for one CTA: use smaller tiles or fewer warps"});
    driver_->check(result, "launch of " + kernel.kernel.name);
    LaunchReport report;
    if (plan.timed) {
      driver_->check(driver_->cuEventRecord(events_[1], stream_), "event");
      driver_->check(driver_->cuEventSynchronize(events_[1]), "execution of " + kernel.kernel.name);
      float milliseconds = 0;
      driver_->check(driver_->cuEventElapsedTime(&milliseconds, events_[0], events_[1]), "elapsed time");
      report.milliseconds = milliseconds;
    }
    return report;
  }

  void mark(size_t number) override {
    make_current();
    while (marks_.size() <= number) {
      marks_.emplace_back();
      driver_->check(driver_->cuEventCreate(&marks_.back(), 0), "event");
    }
    driver_->check(driver_->cuEventRecord(marks_[number], stream_), "event");
  }
  double milliseconds_between(size_t first, size_t last) override {
    make_current();
    float milliseconds = 0;
    driver_->check(driver_->cuEventSynchronize(marks_[last]), "kernel execution");
    driver_->check(driver_->cuEventElapsedTime(&milliseconds, marks_[first], marks_[last]), "elapsed time");
    return milliseconds;
  }
  void copy_on_device(uint64_t to, uint64_t from, int64_t bytes) override {
    make_current();
    driver_->check(driver_->cuMemcpyDtoDAsync(to, from, bytes, stream_), "copy on the device");
  }
  int64_t l2_bytes() const override { return attribute(kDeviceAttributeL2CacheSize); }
  CUstream stream() const override { return stream_; }

  void encode_tensor_map(const codegen::TensorMapPlan& plan, std::span<const int64_t> slots,
                         void* out) override {
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

 private:
  static std::vector<std::string> describe(const codegen::TensorMapPlan& plan,
                                           std::span<const int64_t> slots) {
    std::vector<std::string> facts{fmt::format("address 0x{:x}", slots[plan.base_slot])};
    for (int i = 0; i < plan.rank; ++i)
      facts.push_back(
          fmt::format("dimension {}: extent {}, box {}{}", i, slots[plan.dim_slots[i]], plan.box[i],
                      i == 0 ? "" : fmt::format(", stride {} bytes", slots[plan.stride_slots[i - 1]] / 8)));
    return facts;
  }

  /// Assembles, or takes the machine code from the cache, and loads it.
  void load_module(const codegen::CompiledKernel& kernel, CUmodule& module) {
    const AssemblerTolerance tolerance = AssemblerTolerance::from_environment();
    const Assembler* ptxas = usable_ptxas();
    if (ptxas != nullptr) {
      const Cubin cubin = assemble_cached(*ptxas, kernel, target(), Cache::shared(), tolerance);
      if (driver_->cuModuleLoadDataEx(&module, cubin.bytes.c_str(), 0, nullptr, nullptr) == 0) return;
      // A driver loads what a ptxas of its CUDA version makes. Should it not, its own assembler is tried.
    }
    std::call_once(driver_assembler_once_, [&] { driver_assembler_ = driver_assembler(*driver_); });
    const Cubin cubin = assemble_cached(*driver_assembler_, kernel, target(), Cache::shared(), tolerance);
    driver_->check(driver_->cuModuleLoadDataEx(&module, cubin.bytes.c_str(), 0, nullptr, nullptr),
                   "loading " + kernel.name);
  }

  /// ptxas, unless it is newer than the driver or IMBREX_ASSEMBLER asks for the driver's own assembler.
  const Assembler* usable_ptxas() const {
    if (const char* asked = std::getenv("IMBREX_ASSEMBLER");
        asked != nullptr && std::string_view(asked) == "driver")
      return nullptr;
    const Assembler* ptxas = find_ptxas();
    int version = 0;
    driver_->check(driver_->cuDriverGetVersion(&version), "driver version");
    return ptxas != nullptr && ptxas->cuda_version() / 1000 <= version / 1000 ? ptxas : nullptr;
  }

  int attribute(int which) const {
    int value = 0;
    driver_->check(driver_->cuDeviceGetAttribute(&value, which, device_), "device attribute");
    return value;
  }
  // Each host thread has its own current context; setting it again costs some 20 ns.
  void make_current() { driver_->check(driver_->cuCtxSetCurrent(context_), "set context"); }

  const CudaDriver* driver_ = nullptr;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  CUevent events_[2] = {};
  std::vector<CUevent> marks_;
  std::once_flag driver_assembler_once_;  // threads may load kernels at once
  std::unique_ptr<Assembler> driver_assembler_;
  std::string name_;
  int major_ = 0, minor_ = 0;
};

}  // namespace

std::shared_ptr<DeviceBackend> make_cuda_device(int ordinal) { return std::make_shared<CudaDevice>(ordinal); }

}  // namespace imbrex::runtime
