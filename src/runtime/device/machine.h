// SPDX-License-Identifier: Apache-2.0
// The virtual GPU that a device stands on: of this process, or, for a rank that is a process of its own, of the process
// that hosts the virtual node (parallel/remote_machine.h). What cannot travel between processes is not here: streams are
// numbers, modules too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "imbrex/core/source_location.h"
#include "imbrex/vgpu/virtual_gpu.h"
#include "imbrex/vgpu/virtual_node.h"

namespace imbrex::runtime {

/// Calls as of vgpu::VirtualGpu, one at a time, but for launch().
class Machine {
 public:
  using Stream = vgpu::StreamOrder::Stream;
  using Event = vgpu::StreamOrder::Event;
  virtual ~Machine() = default;

  virtual const vgpu::Options& options() const = 0;
  /// Null where the GPU is in another process.
  virtual vgpu::VirtualGpu* gpu() { return nullptr; }

  virtual uint64_t allocate(int64_t bytes) = 0;
  virtual void free(uint64_t address, SourceLocation where) = 0;
  virtual void write(uint64_t to, std::span<const std::byte> from) = 0;
  virtual void read(std::span<std::byte> to, uint64_t from) = 0;
  virtual void copy(uint64_t to, uint64_t from, int64_t bytes) = 0;
  virtual void fill(uint64_t to, uint8_t value, int64_t bytes) = 0;
  virtual void discard(uint64_t at, int64_t bytes) = 0;

  // Of VirtualGpu::order().
  virtual Stream create_stream(const std::string& name, bool is_blocking) = 0;
  virtual void destroy_stream(Stream stream) = 0;
  virtual Event create_event() = 0;
  virtual void destroy_event(Event event) = 0;
  virtual void record(Event event, Stream stream) = 0;
  virtual void wait(Stream stream, Event event) = 0;
  virtual void synchronize_stream(Stream stream) = 0;
  virtual void synchronize_event(Event event) = 0;
  virtual void synchronize() = 0;
  virtual void forget(vgpu::ByteRange bytes) = 0;
  virtual std::vector<vgpu::Finding> judge(Stream stream, const vgpu::HostCall& call,
                                           const vgpu::Footprint& footprint) = 0;
  virtual std::vector<vgpu::Finding> judge_on_host(const vgpu::HostCall& call,
                                                   const vgpu::Footprint& footprint) = 0;

  /// Loads PTX; the module's number.
  virtual uint32_t load(std::string_view ptx, std::string_view name) = 0;
  virtual void unload(uint32_t module) = 0;
  /// What is to be known of the kernels of such PTX; `module` is its number.
  virtual vgpu::Module facts(uint32_t module, std::string_view ptx, std::string_view name) = 0;
  /// Of a rank: other threads may make calls meanwhile.
  virtual vgpu::Report launch(uint32_t module, const std::string& kernel, const vgpu::Launch& launch) = 0;
  virtual bool is_rank() const = 0;
};

/// The parameter buffer of a launch, whichever way it has its arguments.
std::vector<std::byte> parameters_of(const vgpu::Function& function, const vgpu::Launch& launch);

/// Runs a launch of one rank of a virtual node, together with those of the other ranks.
using RankLauncher = std::function<vgpu::Report(const vgpu::Function&, const vgpu::Launch&)>;

std::shared_ptr<Machine> make_machine(vgpu::Options options);
std::shared_ptr<Machine> make_rank_machine(std::shared_ptr<vgpu::VirtualNode> node, int rank,
                                           RankLauncher launcher);

}  // namespace imbrex::runtime
