// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/machine.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

namespace imbrex::runtime {

namespace {

class LocalMachine : public Machine {
 public:
  LocalMachine(std::shared_ptr<void> keeper, vgpu::VirtualGpu& gpu, RankLauncher launcher)
      : keeper_(std::move(keeper)), gpu_(gpu), launcher_(std::move(launcher)) {}

  const vgpu::Options& options() const override { return gpu_.options(); }
  vgpu::VirtualGpu* gpu() override { return &gpu_; }

  uint64_t allocate(int64_t bytes) override { return gpu_.allocate(bytes); }
  void free(uint64_t address, SourceLocation where) override { gpu_.free(address, where); }
  void write(uint64_t to, std::span<const std::byte> from) override {
    gpu_.copy_to_device(to, from.data(), std::ssize(from));
  }
  void read(std::span<std::byte> to, uint64_t from) override {
    gpu_.copy_from_device(to.data(), from, std::ssize(to));
  }
  void copy(uint64_t to, uint64_t from, int64_t bytes) override { gpu_.copy_on_device(to, from, bytes); }
  void fill(uint64_t to, uint8_t value, int64_t bytes) override { gpu_.fill(to, value, bytes); }
  void discard(uint64_t at, int64_t bytes) override { gpu_.discard(at, bytes); }

  Stream create_stream(const std::string& name, bool is_blocking) override {
    return gpu_.order().create_stream(name, is_blocking);
  }
  void destroy_stream(Stream stream) override { gpu_.order().destroy_stream(stream); }
  Event create_event() override { return gpu_.order().create_event(); }
  void destroy_event(Event event) override { gpu_.order().destroy_event(event); }
  void record(Event event, Stream stream) override { gpu_.order().record(event, stream); }
  void wait(Stream stream, Event event) override { gpu_.order().wait(stream, event); }
  void synchronize_stream(Stream stream) override { gpu_.order().synchronize(stream); }
  void synchronize_event(Event event) override { gpu_.order().synchronize_event(event); }
  void synchronize() override { gpu_.order().synchronize(); }
  void forget(vgpu::ByteRange bytes) override { gpu_.order().forget(bytes); }
  std::vector<vgpu::Finding> judge(Stream stream, const vgpu::HostCall& call,
                                   const vgpu::Footprint& footprint) override {
    return gpu_.judge(stream, call, footprint);
  }
  std::vector<vgpu::Finding> judge_on_host(const vgpu::HostCall& call,
                                           const vgpu::Footprint& footprint) override {
    if (!gpu_.options().checks.stream_order) return {};
    return gpu_.order().perform_on_host(call, footprint);
  }

  uint32_t load(std::string_view ptx, std::string_view name) override {
    vgpu::Module module = gpu_.load_module(ptx, name);
    const std::lock_guard lock(modules_mutex_);
    modules_.emplace(++last_module_, std::move(module));
    return last_module_;
  }
  void unload(uint32_t module) override {
    const std::lock_guard lock(modules_mutex_);
    modules_.erase(module);
  }
  vgpu::Module facts(uint32_t module, std::string_view, std::string_view) override {
    const std::lock_guard lock(modules_mutex_);
    return modules_.at(module);
  }
  vgpu::Report launch(uint32_t module, const std::string& kernel, const vgpu::Launch& launch) override {
    vgpu::Function function = facts(module, {}, {}).function(kernel);
    if (launch.dynamic_shared_bytes > 0) function.set_max_dynamic_shared(launch.dynamic_shared_bytes);
    return is_rank() ? launcher_(function, launch) : gpu_.launch(function, launch);
  }
  bool is_rank() const override { return launcher_ != nullptr; }

 private:
  const std::shared_ptr<void> keeper_;  // of the GPU
  vgpu::VirtualGpu& gpu_;
  const RankLauncher launcher_;  // empty: launches run alone
  std::mutex modules_mutex_;     // launches of a rank look modules up while others are loaded
  std::map<uint32_t, vgpu::Module> modules_;
  uint32_t last_module_ = 0;
};

}  // namespace

std::vector<std::byte> parameters_of(const vgpu::Function& function, const vgpu::Launch& launch) {
  if (launch.arguments.empty()) return {launch.parameter_buffer.begin(), launch.parameter_buffer.end()};
  std::vector<std::byte> buffer(static_cast<size_t>(function.attributes().parameter_bytes));
  const std::vector<vgpu::Parameter>& parameters = function.parameters();
  for (size_t i = 0; i < std::min(parameters.size(), launch.arguments.size()); ++i)
    std::memcpy(buffer.data() + parameters[i].offset, launch.arguments[i],
                static_cast<size_t>(parameters[i].bytes));
  return buffer;
}

std::shared_ptr<Machine> make_machine(vgpu::Options options) {
  auto gpu = std::make_shared<vgpu::VirtualGpu>(std::move(options));
  vgpu::VirtualGpu& machine = *gpu;
  return std::make_shared<LocalMachine>(std::move(gpu), machine, RankLauncher{});
}

std::shared_ptr<Machine> make_rank_machine(std::shared_ptr<vgpu::VirtualNode> node, int rank,
                                           RankLauncher launcher) {
  vgpu::VirtualGpu& gpu = node->gpu(rank);
  return std::make_shared<LocalMachine>(std::move(node), gpu, std::move(launcher));
}

}  // namespace imbrex::runtime
