// SPDX-License-Identifier: Apache-2.0
// The virtual GPU as a device. Unlike the machine itself it may be used from several threads, as a CUDA
// device may: one call at a time.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>

#include "imbrex/core/error.h"
#include "imbrex/vgpu/virtual_gpu.h"
#include "runtime/device/backend.h"
#include "vgpu/program/launch.h"

namespace imbrex::runtime {
namespace {

class VirtualKernel : public LoadedKernel {
 public:
  explicit VirtualKernel(std::shared_ptr<std::mutex> turn) : turn_(std::move(turn)) {}
  ~VirtualKernel() override {
    const std::lock_guard lock(*turn_);
    function = {};  // which gives its module's memory back
  }
  vgpu::Function function;
  codegen::CompiledKernel kernel;

 private:
  std::shared_ptr<std::mutex> turn_;
};

class VirtualModule : public LoadedModule {
 public:
  explicit VirtualModule(std::shared_ptr<std::mutex> turn) : turn_(std::move(turn)) {}
  ~VirtualModule() override {
    const std::lock_guard lock(*turn_);
    facts = {};  // which gives its memory back
  }

 private:
  std::shared_ptr<std::mutex> turn_;
};

/// Everything has ended when a call returns: a point in a stream is a point in time.
class VirtualEvent : public DeviceEvent {
 public:
  void record(CUstream_st*) override { time_ = std::chrono::steady_clock::now(); }
  void hold(CUstream_st*) override {}
  void synchronize() override {}
  double milliseconds_since(DeviceEvent& earlier) override {
    return std::chrono::duration<double, std::milli>(time_ - static_cast<VirtualEvent&>(earlier).time_)
        .count();
  }

 private:
  std::chrono::steady_clock::time_point time_;
};

class VirtualDevice : public DeviceBackend {
 public:
  explicit VirtualDevice(vgpu::Options options) : gpu_(std::move(options)) {}

  bool is_virtual() const override { return true; }
  std::string name() const override { return fmt::format("virtual GPU ({})", gpu_.options().target); }
  std::string target() const override { return gpu_.options().target; }
  int multiprocessors() const override {
    const vgpu::Options& options = gpu_.options();
    return options.num_sms > 0 ? options.num_sms : vgpu::sm_count(vgpu::target_limits(options.target));
  }
  void synchronize() override {}
  void synchronize(CUstream_st*) override {}

  uint64_t allocate(int64_t bytes) override {
    const std::lock_guard lock(*turn_);
    return gpu_.allocate(bytes);
  }
  void free(uint64_t address) noexcept override {
    try {
      const std::lock_guard lock(*turn_);
      gpu_.free(address);
    } catch (const Error&) {
      // The memory was released before; a destructor must not throw.
    }
  }
  void check_memory(uint64_t address, int64_t bytes) const override {
    const std::lock_guard lock(*turn_);
    std::byte ends[2];
    gpu_.copy_from_device(&ends[0], address, 1);
    gpu_.copy_from_device(&ends[1], address + static_cast<uint64_t>(bytes) - 1, 1);
  }
  void start_copy_to_device(uint64_t to, const void* from, int64_t bytes, CUstream_st*) override {
    const std::lock_guard lock(*turn_);
    gpu_.copy_to_device(to, from, bytes);
  }
  void start_copy_from_device(void* to, uint64_t from, int64_t bytes, CUstream_st*) override {
    const std::lock_guard lock(*turn_);
    gpu_.copy_from_device(to, from, bytes);
  }
  void start_copy_on_device(uint64_t to, uint64_t from, int64_t bytes, CUstream_st*) override {
    const std::lock_guard lock(*turn_);
    gpu_.copy_on_device(to, from, bytes);
  }
  void start_fill(uint64_t to, uint8_t value, int64_t bytes, CUstream_st*) override {
    const std::lock_guard lock(*turn_);
    gpu_.fill(to, value, bytes);
  }
  void check_adopted(CUstream_st* stream) const override {
    constexpr uintptr_t kPerThread = 2;  // and 1, the legacy one, are CUDA's default streams
    if (reinterpret_cast<uintptr_t>(stream) > kPerThread)
      throw LaunchError(
          Diagnostic{{},
                     fmt::format("Stream::adopt: 0x{:x} cannot be a stream of '{}'",
                                 reinterpret_cast<uintptr_t>(stream), name()),
                     {},
                     "CUDA streams are of CUDA devices: use Stream::create on the virtual GPU"});
  }
  std::unique_ptr<DeviceEvent> create_event() override { return std::make_unique<VirtualEvent>(); }

  std::shared_ptr<LoadedKernel> load(const codegen::CompiledKernel& kernel) override {
    auto loaded = std::make_shared<VirtualKernel>(turn_);
    const std::lock_guard lock(*turn_);
    loaded->function = gpu_.load_module(kernel.ptx, kernel.name + ".ptx").function(kernel.name);
    if (kernel.shared_bytes > 0) loaded->function.set_max_dynamic_shared(kernel.shared_bytes);
    loaded->kernel = kernel;
    return loaded;
  }

  LaunchReport launch(LoadedKernel& loaded, const LaunchPlan& plan) override {
    auto& virtual_kernel = static_cast<VirtualKernel&>(loaded);
    const codegen::CompiledKernel& kernel = virtual_kernel.kernel;
    vgpu::Launch launch;
    launch.grid = {plan.grid[0], plan.grid[1], plan.grid[2]};
    launch.cluster = {kernel.cluster[0], kernel.cluster[1], kernel.cluster[2]};
    launch.block = {kernel.threads};
    launch.dynamic_shared_bytes = kernel.shared_bytes;
    launch.parameter_buffer = plan.params;
    const std::lock_guard lock(*turn_);
    return timed_launch(virtual_kernel.function, launch);
  }

  std::shared_ptr<LoadedModule> load_ptx(const std::string& ptx, const std::string& name) override {
    auto module = std::make_shared<VirtualModule>(turn_);
    const std::lock_guard lock(*turn_);
    module->facts = gpu_.load_module(ptx, name);
    return module;
  }

  LaunchReport launch_ptx(LoadedModule& module, const std::string& kernel, const vgpu::Launch& launch,
                          CUstream_st*) override {
    const std::lock_guard lock(*turn_);
    vgpu::Function function = module.facts.function(kernel);
    if (launch.dynamic_shared_bytes > 0) function.set_max_dynamic_shared(launch.dynamic_shared_bytes);
    return timed_launch(function, launch);
  }

  void encode_tensor_map(const codegen::TensorMapPlan& plan, std::span<const int64_t> slots,
                         void* out) override {
    std::vector<uint64_t> dims, strides;
    for (int32_t slot : plan.dim_slots) dims.push_back(slots[slot]);
    for (int32_t slot : plan.stride_slots) strides.push_back(static_cast<uint64_t>(slots[slot]) / 8);
    std::vector<uint32_t> box(plan.box.begin(), plan.box.end());
    vgpu::TensorMapArguments arguments;
    arguments.type = plan.driver_type;
    arguments.address = slots[plan.base_slot];
    arguments.dims = dims;
    arguments.strides_bytes = strides;
    arguments.box = box;
    arguments.interleave = plan.interleave;
    arguments.swizzle = plan.swizzle;
    arguments.l2_promotion = static_cast<int>(plan.l2_promotion);
    arguments.fill_with_nan = plan.oob_fill == TensorMapFill::kNan;
    vgpu::TensorMap map = vgpu::encode_tensor_map(arguments);
    std::copy_n(reinterpret_cast<const std::byte*>(&map), sizeof map, static_cast<std::byte*>(out));
  }

  vgpu::VirtualGpu gpu_;

 private:
  /// With the turn taken.
  LaunchReport timed_launch(const vgpu::Function& function, const vgpu::Launch& launch) {
    LaunchReport report;
    report.is_virtual = true;
    const auto begin = std::chrono::steady_clock::now();
    report.virtual_report = gpu_.launch(function, launch);
    report.milliseconds =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    return report;
  }

  const std::shared_ptr<std::mutex> turn_ = std::make_shared<std::mutex>();
};

}  // namespace

std::shared_ptr<DeviceBackend> make_virtual_device(vgpu::Options options) {
  return std::make_shared<VirtualDevice>(std::move(options));
}

vgpu::VirtualGpu& virtual_machine(DeviceBackend& backend) {
  if (!backend.is_virtual())
    throw LaunchError(
        Diagnostic{{}, fmt::format("device '{}' is not the virtual GPU", backend.name()), {}, ""});
  return static_cast<VirtualDevice&>(backend).gpu_;
}

}  // namespace imbrex::runtime
