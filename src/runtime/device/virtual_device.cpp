// SPDX-License-Identifier: Apache-2.0
// The virtual GPU as a device. Unlike the machine itself it may be used from several threads, as a CUDA
// device may: one call at a time.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "core/target.h"
#include "imbrex/core/error.h"
#include "imbrex/runtime/caller_line.h"
#include "imbrex/vgpu/virtual_gpu.h"
#include "runtime/device/backend.h"
#include "runtime/device/machine.h"
#include "runtime/device/virtual_graph.h"
#include "vgpu/program/launch.h"

namespace imbrex::runtime {
namespace {

/// PTX that is loaded on a machine, as long as this lives.
class MachineModule {
 public:
  MachineModule(std::shared_ptr<std::mutex> turn, std::shared_ptr<Machine> machine)
      : turn_(std::move(turn)), machine_(std::move(machine)) {}
  ~MachineModule() {
    const std::lock_guard lock(*turn_);
    if (number != 0) machine_->unload(number);
  }
  MachineModule(const MachineModule&) = delete;
  MachineModule& operator=(const MachineModule&) = delete;
  uint32_t number = 0;  // 0: not loaded yet

 private:
  std::shared_ptr<std::mutex> turn_;
  std::shared_ptr<Machine> machine_;
};

class VirtualKernel : public LoadedKernel {
 public:
  VirtualKernel(std::shared_ptr<std::mutex> turn, std::shared_ptr<Machine> machine)
      : module(std::move(turn), std::move(machine)) {}
  MachineModule module;
  codegen::CompiledKernel kernel;
};

class VirtualModule : public LoadedModule {
 public:
  VirtualModule(std::shared_ptr<std::mutex> turn, std::shared_ptr<Machine> machine)
      : module(turn, std::move(machine)), turn_(std::move(turn)) {}
  ~VirtualModule() override {
    const std::lock_guard lock(*turn_);
    facts = {};  // which gives its memory back
  }
  MachineModule module;

 private:
  std::shared_ptr<std::mutex> turn_;
};

using vgpu::StreamOrder;

class VirtualDevice;

/// Everything has ended when a call returns: a point in a stream is a point in time, and one in the order of calls.
class VirtualEvent : public DeviceEvent {
 public:
  explicit VirtualEvent(VirtualDevice& device);
  ~VirtualEvent() override;
  void record(CUstream_st* stream) override;
  void hold(CUstream_st* stream) override;
  void synchronize() override;
  double milliseconds_since(DeviceEvent& earlier) override {
    synchronize();
    return std::chrono::duration<double, std::milli>(time_ - static_cast<VirtualEvent&>(earlier).time_)
        .count();
  }

 private:
  VirtualDevice& device_;
  StreamOrder::Event event_;
  std::chrono::steady_clock::time_point time_;
};

class VirtualDevice : public DeviceBackend {
 public:
  VirtualDevice(std::shared_ptr<Machine> machine, std::shared_ptr<std::mutex> turn)
      : machine_(std::move(machine)), turn_(std::move(turn)) {
    const std::lock_guard lock(*turn_);
    own_stream_ = make_stream("the device's own stream", false);
  }

  bool is_virtual() const override { return true; }
  std::string name() const override { return fmt::format("virtual GPU ({})", machine_->options().target); }
  std::string target() const override { return machine_->options().target; }
  int multiprocessors() const override {
    const vgpu::Options& options = machine_->options();
    return options.num_sms > 0 ? options.num_sms : vgpu::sm_count(vgpu::target_limits(options.target));
  }
  void synchronize() override {
    const std::lock_guard lock(*turn_);
    refuse_in_capture("Device::synchronize");
    machine_->synchronize();
  }
  void synchronize(CUstream_st* stream) override {
    const std::lock_guard lock(*turn_);
    machine_->synchronize_stream(number_of(stream));
  }

  uint64_t allocate(int64_t bytes) override {
    const std::lock_guard lock(*turn_);
    refuse_in_capture("an allocation");
    const uint64_t address = machine_->allocate(bytes);
    sizes_[address] = bytes;
    return address;
  }
  void free(uint64_t address, SourceLocation where) noexcept override {
    try {
      const std::lock_guard lock(*turn_);
      machine_->free(address, where);
      // It waits, as cuMemFree does; but nothing else may count on that, so the calls stay unordered.
      const auto bytes = sizes_.extract(address);
      if (!bytes.empty()) machine_->forget({address, address + static_cast<uint64_t>(bytes.mapped())});
    } catch (const Error&) {
      // The memory was released before; a destructor must not throw.
    }
  }
  void check_unused(uint64_t address, int64_t bytes, SourceLocation where) override {
    const std::lock_guard lock(*turn_);
    report(
        machine_->judge_on_host({"release of a tensor", where}, vgpu::Footprint::of_write(address, bytes)));
  }
  void check_memory(uint64_t address, int64_t bytes) const override {
    const std::lock_guard lock(*turn_);
    std::byte ends[2];
    try {
      machine_->read({&ends[0], 1}, address);
      machine_->read({&ends[1], 1}, address + static_cast<uint64_t>(bytes) - 1);
    } catch (const LaunchError& error) {
      // It speaks of the byte that was tried.
      Diagnostic whole = error.diagnostics().front();
      if (whole.message.ends_with("are not inside one allocation"))
        whole.message = fmt::format("{} {} at 0x{:x} are not inside one allocation", bytes,
                                    bytes == 1 ? "byte" : "bytes", address);
      throw LaunchError(std::move(whole));
    }
  }
  void start_copy_to_device(uint64_t to, const void* from, int64_t bytes, OnStream on) override {
    if (records(on.stream, [=, this](CUstream_st* stream) {
          start_copy_to_device(to, from, bytes, {stream, on.where});
        }))
      return;
    const std::lock_guard lock(*turn_);
    machine_->write(to, {static_cast<const std::byte*>(from), static_cast<size_t>(bytes)});
    judge(on.stream, {"copy from the host", on.where},
          vgpu::Footprint::of_copy(to, host_address(from), bytes));
  }
  void start_copy_from_device(void* to, uint64_t from, int64_t bytes, OnStream on) override {
    if (records(on.stream, [=, this](CUstream_st* stream) {
          start_copy_from_device(to, from, bytes, {stream, on.where});
        }))
      return;
    const std::lock_guard lock(*turn_);
    machine_->read({static_cast<std::byte*>(to), static_cast<size_t>(bytes)}, from);
    judge(on.stream, {"copy to the host", on.where}, vgpu::Footprint::of_copy(host_address(to), from, bytes));
  }
  void start_copy_on_device(uint64_t to, uint64_t from, int64_t bytes, OnStream on) override {
    if (records(on.stream, [=, this](CUstream_st* stream) {
          start_copy_on_device(to, from, bytes, {stream, on.where});
        }))
      return;
    const std::lock_guard lock(*turn_);
    machine_->copy(to, from, bytes);
    judge(on.stream, {"copy on the device", on.where}, vgpu::Footprint::of_copy(to, from, bytes));
  }
  void start_fill(uint64_t to, uint8_t value, int64_t bytes, OnStream on) override {
    if (records(on.stream, [=, this](CUstream_st* stream) {
          start_fill(to, value, bytes, {stream, on.where});
        }))
      return;
    const std::lock_guard lock(*turn_);
    machine_->fill(to, value, bytes);
    judge(on.stream, {"fill", on.where}, vgpu::Footprint::of_write(to, bytes));
  }

  CUstream_st* stream() const override { return own_stream_; }
  CUstream_st* create_stream() override {
    const std::lock_guard lock(*turn_);
    return make_stream("", false);
  }
  void destroy_stream(CUstream_st* stream) noexcept override {
    StreamOrder::Stream number = 0;
    {
      const std::lock_guard lock(*turn_);
      const auto at = streams_.find(stream);
      if (at == streams_.end()) return;
      number = at->second->number;
    }
    scratch().forget(*this, number);
    const std::lock_guard lock(*turn_);
    const auto at = streams_.find(stream);
    machine_->destroy_stream(at->second->number);
    streams_.erase(at);
  }
  void check_adopted(CUstream_st* stream) const override {
    const std::lock_guard lock(*turn_);
    if (reinterpret_cast<uintptr_t>(stream) > kPerThread && !streams_.contains(stream))
      throw LaunchError(
          Diagnostic{{},
                     fmt::format("Stream::adopt: 0x{:x} is no stream of '{}'",
                                 reinterpret_cast<uintptr_t>(stream), name()),
                     {},
                     "CUDA streams are of CUDA devices: use Stream::create on the virtual GPU"});
  }
  bool is_capturing(CUstream_st* stream) const override {
    const std::lock_guard lock(*turn_);
    return captures_.contains(stream);
  }
  void begin_capture(CUstream_st* stream) override {
    const std::lock_guard lock(*turn_);
    if (number_of(stream) == StreamOrder::kLegacyStream)
      throw LaunchError(Diagnostic{{},
                                   "Graph::capture: CUDA's legacy default stream cannot be captured",
                                   {},
                                   "capture a stream of Stream::create"});
    captures_[stream].thread = std::this_thread::get_id();
  }
  std::unique_ptr<DeviceGraph> end_capture(CUstream_st* stream) override {
    VirtualCapture capture;
    {
      const std::lock_guard lock(*turn_);
      capture = std::move(captures_.extract(stream).mapped());
    }
    const std::string why_not = capture.spoiled;
    auto graph = std::make_unique<VirtualGraph>(*this, std::move(capture));
    if (!why_not.empty())
      throw DeviceError(
          Diagnostic{{}, "the capture was spoiled: " + why_not, {}, "call it before the capture"});
    return graph;
  }
  uint64_t allocate_in_capture(int64_t bytes, CUstream_st* stream) override {
    const std::lock_guard lock(*turn_);
    const uint64_t address = machine_->allocate(bytes);
    sizes_[address] = bytes;
    captures_.at(stream).memory.push_back(address);
    return address;
  }
  uint64_t number_of_stream(CUstream_st* stream) override {
    const std::lock_guard lock(*turn_);
    return number_of(stream);
  }
  void scratch_taken(uint64_t address, int64_t bytes, OnStream on) override {
    if (records(on.stream, [=, this](CUstream_st* stream) {
          scratch_taken(address, bytes, {stream, on.where});
        }))
      return;
    const std::lock_guard lock(*turn_);
    machine_->discard(address, bytes);  // for those who count on zeros
    judge(on.stream, {"fill", on.where}, vgpu::Footprint::of_write(address, bytes));
  }
  void scratch_given_back(uint64_t address, int64_t bytes, OnStream on) noexcept override {
    try {
      const std::lock_guard lock(*turn_);
      // Nobody could catch it here: the next call tells.
      for (vgpu::Finding& finding : machine_->judge(number_of(on.stream), {"end of a workspace", on.where},
                                                    vgpu::Footprint::of_write(address, bytes)))
        untold_.push_back(std::move(finding));
    } catch (const Error&) {
      // The stream is gone.
    }
  }
  std::unique_ptr<DeviceEvent> create_event() override { return std::make_unique<VirtualEvent>(*this); }

  std::shared_ptr<LoadedKernel> load(const codegen::CompiledKernel& kernel) override {
    if (!runs_code_of(target(), kernel.target))
      throw LaunchError(Diagnostic{kernel.where,
                                   fmt::format("{}: is a kernel for {}, which the {} does not run",
                                               kernel.name, kernel.target, name()),
                                   {},
                                   fmt::format("open a device for {}, or say which target the kernel is for: "
                                               "`static constexpr const char* target = ...`",
                                               kernel.target)});
    auto loaded = std::make_shared<VirtualKernel>(turn_, machine_);
    const std::lock_guard lock(*turn_);
    loaded->module.number = machine_->load(kernel.ptx, kernel.name + ".ptx");
    loaded->kernel = kernel;
    return loaded;
  }

  LaunchReport launch(LoadedKernel& loaded, const LaunchPlan& plan) override {
    std::vector<std::byte> params(plan.params.begin(), plan.params.end());
    const auto again = [=, this, &loaded, params = std::move(params)](CUstream_st* stream) {
      LaunchPlan recorded = plan;
      recorded.params = params;
      recorded.stream = stream;
      return launch(loaded, recorded);
    };
    if (records(plan.stream, again)) return nothing_found();
    auto& virtual_kernel = static_cast<VirtualKernel&>(loaded);
    const codegen::CompiledKernel& kernel = virtual_kernel.kernel;
    vgpu::Launch launch;
    launch.grid = {plan.grid[0], plan.grid[1], plan.grid[2]};
    launch.cluster = {kernel.cluster[0], kernel.cluster[1], kernel.cluster[2]};
    launch.block = {kernel.threads};
    launch.dynamic_shared_bytes = kernel.shared_bytes;
    launch.parameter_buffer = plan.params;
    launch.where = plan.where;
    std::unique_lock lock(*turn_);
    LaunchReport report = timed_launch(lock, virtual_kernel.module.number, kernel.name, launch, plan.stream);
    if (plan.timed) machine_->synchronize_stream(number_of(plan.stream));
    return report;
  }

  std::shared_ptr<LoadedModule> load_ptx(const std::string& ptx, const std::string& name) override {
    auto module = std::make_shared<VirtualModule>(turn_, machine_);
    const std::lock_guard lock(*turn_);
    module->module.number = machine_->load(ptx, name);
    module->facts = machine_->facts(module->module.number, ptx, name);
    return module;
  }

  LaunchReport launch_ptx(LoadedModule& module, const std::string& kernel, const vgpu::Launch& launch,
                          CUstream_st* stream) override {
    const auto again = [=, this, &module,
                        params = parameters_of(module.facts.function(kernel), launch)](CUstream_st* other) {
      vgpu::Launch recorded = launch;
      recorded.arguments = {};
      recorded.parameter_buffer = params;
      return launch_ptx(module, kernel, recorded, other);
    };
    if (records(stream, again)) return nothing_found();
    std::unique_lock lock(*turn_);
    return timed_launch(lock, static_cast<VirtualModule&>(module).module.number, kernel, launch, stream);
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

 private:
  const std::shared_ptr<Machine> machine_;

 public:
  Machine& machine() { return *machine_; }

 private:
  friend class VirtualEvent;
  static constexpr uintptr_t kPerThread = 2;  // with 0 and 1, the legacy one, CUDA's default streams

  /// What a handle of a stream points to.
  struct VirtualStream {
    StreamOrder::Stream number;
  };

  // With the turn held, all of them.
  LaunchReport timed_launch(std::unique_lock<std::mutex>& turn, uint32_t module, const std::string& kernel,
                            vgpu::Launch launch, CUstream_st* stream) {
    launch.stream = number_of(stream);
    launch.where = CallerLine::or_else(launch.where);
    LaunchReport report;
    report.is_virtual = true;
    const auto begin = std::chrono::steady_clock::now();
    if (machine_->is_rank()) turn.unlock();
    report.virtual_report = machine_->launch(module, kernel, launch);
    if (machine_->is_rank()) turn.lock();
    report.milliseconds =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    std::vector<vgpu::Finding>& findings = report.virtual_report.findings;
    findings.insert(findings.end(), std::move_iterator(untold_.begin()), std::move_iterator(untold_.end()));
    untold_.clear();
    return report;
  }

  CUstream_st* make_stream(std::string name, bool is_blocking) {
    auto stream =
        std::make_unique<VirtualStream>(VirtualStream{machine_->create_stream(std::move(name), is_blocking)});
    const auto handle = reinterpret_cast<CUstream_st*>(stream.get());
    streams_[handle] = std::move(stream);
    return handle;
  }
  StreamOrder::Stream number_of(CUstream_st* stream) {
    const auto value = reinterpret_cast<uintptr_t>(stream);
    if (value < kPerThread) return StreamOrder::kLegacyStream;
    if (value == kPerThread) {
      const auto [at, is_new] = of_threads_.try_emplace(std::this_thread::get_id());
      if (is_new) at->second = machine_->create_stream("a thread's default stream", true);
      return at->second;
    }
    const auto at = streams_.find(stream);
    if (at == streams_.end())
      throw LaunchError(Diagnostic{{},
                                   fmt::format("stream 0x{:x} of '{}' has been destroyed", value, name()),
                                   {},
                                   "keep a handle of the stream while others of it, adopted, are in use"});
    return at->second->number;
  }
  /// Whether the stream is being captured: then the call is recorded, and not to be made. Without the turn.
  template <class Call>
  bool records(CUstream_st* stream, Call&& call) {
    const std::lock_guard lock(*turn_);
    const auto at = captures_.find(stream);
    if (at == captures_.end()) return false;
    if constexpr (std::is_void_v<decltype(call(stream))>)
      at->second.calls.push_back([call](CUstream_st* other) {
        call(other);
        return nothing_found();
      });
    else
      at->second.calls.push_back(call);
    return true;
  }
  static LaunchReport nothing_found() {
    LaunchReport report;
    report.is_virtual = report.virtual_report.completed = true;
    return report;
  }
  /// What the driver refuses while the thread captures a stream, and what ends the capture.
  void refuse_in_capture(const char* what) {
    for (auto& [stream, capture] : captures_) {
      if (capture.thread != std::this_thread::get_id()) continue;
      capture.spoiled = what;
      throw DeviceError(Diagnostic{{},
                                   fmt::format("{} while this thread captures a stream", what),
                                   {},
                                   "call it before the capture begins"});
    }
  }
  void refuse_event(CUstream_st* stream) const {
    if (captures_.contains(stream))
      throw LaunchError(
          Diagnostic{{},
                     "an event on a stream that is being captured: the virtual GPU captures one stream",
                     {},
                     "capture branches one by one, and order the graphs by events"});
  }
  void judge(CUstream_st* stream, vgpu::HostCall call, const vgpu::Footprint& footprint) {
    call.where = CallerLine::or_else(call.where);
    report(machine_->judge(number_of(stream), call, footprint));
  }
  /// Throws DeviceError where there are findings: these calls have no report that could hold them.
  void report(std::vector<vgpu::Finding> findings) {
    findings.insert(findings.end(), std::move_iterator(untold_.begin()), std::move_iterator(untold_.end()));
    untold_.clear();
    if (findings.empty()) return;
    vgpu::Report report;
    report.findings = std::move(findings);
    report.expect_clean();
  }
  static uint64_t host_address(const void* memory) { return reinterpret_cast<uintptr_t>(memory); }

  const std::shared_ptr<std::mutex> turn_;
  std::map<CUstream_st*, std::unique_ptr<VirtualStream>> streams_;
  std::map<std::thread::id, StreamOrder::Stream> of_threads_;
  std::map<uint64_t, int64_t> sizes_;                // of what was allocated, by address
  std::map<CUstream_st*, VirtualCapture> captures_;  // under way, by stream
  CUstream_st* own_stream_ = nullptr;
  std::vector<vgpu::Finding> untold_;  // of ends of workspaces
};

VirtualEvent::VirtualEvent(VirtualDevice& device) : device_(device) {
  const std::lock_guard lock(*device_.turn_);
  event_ = device_.machine_->create_event();
}
VirtualEvent::~VirtualEvent() {
  const std::lock_guard lock(*device_.turn_);
  device_.machine_->destroy_event(event_);
}
void VirtualEvent::record(CUstream_st* stream) {
  const std::lock_guard lock(*device_.turn_);
  device_.refuse_event(stream);
  device_.machine_->record(event_, device_.number_of(stream));
  time_ = std::chrono::steady_clock::now();
}
void VirtualEvent::hold(CUstream_st* stream) {
  const std::lock_guard lock(*device_.turn_);
  device_.refuse_event(stream);
  device_.machine_->wait(device_.number_of(stream), event_);
}
void VirtualEvent::synchronize() {
  const std::lock_guard lock(*device_.turn_);
  device_.machine_->synchronize_event(event_);
}

}  // namespace

std::shared_ptr<DeviceBackend> make_virtual_device(vgpu::Options options) {
  return make_virtual_device(make_machine(std::move(options)), std::make_shared<std::mutex>());
}

std::shared_ptr<DeviceBackend> make_virtual_device(std::shared_ptr<Machine> machine,
                                                   std::shared_ptr<std::mutex> turn) {
  return std::make_shared<VirtualDevice>(std::move(machine), std::move(turn));
}

const vgpu::Options& virtual_options(DeviceBackend& backend) {
  return static_cast<VirtualDevice&>(backend).machine().options();
}

vgpu::VirtualGpu& virtual_machine(DeviceBackend& backend) {
  if (!backend.is_virtual())
    throw LaunchError(
        Diagnostic{{}, fmt::format("device '{}' is not the virtual GPU", backend.name()), {}, ""});
  vgpu::VirtualGpu* const gpu = static_cast<VirtualDevice&>(backend).machine().gpu();
  if (gpu == nullptr)
    throw LaunchError(Diagnostic{{},
                                 fmt::format("'{}' runs in the process of rank 0", backend.name()),
                                 {},
                                 "for predictions and other options, run the ranks as threads: "
                                 "Ranks::virtual_node()"});
  return *gpu;
}

}  // namespace imbrex::runtime
