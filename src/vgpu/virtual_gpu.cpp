// SPDX-License-Identifier: Apache-2.0
#include "imbrex/vgpu/virtual_gpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <optional>
#include <thread>

#include "core/text.h"
#include "imbrex/core/error.h"
#include "imbrex/vgpu/virtual_node.h"
#include "ptx/insns.h"
#include "ptx/register_pressure.h"
#include "vgpu/gpu_data.h"
#include "vgpu/memory/tensor_memory.h"
#include "vgpu/program/program_builder.h"
#include "vgpu/stack_limit.h"
#include "vgpu/timeline/sampling.h"
#include "vgpu/timeline/sm_groups.h"

namespace imbrex::vgpu {

namespace {

[[noreturn]] void fail(std::string message, std::vector<std::string> facts = {}, std::string help = "") {
  throw LaunchError({{}, "virtual gpu: " + std::move(message), std::move(facts), std::move(help)});
}

std::string text_of(const Dim3& d) { return fmt::format("({}, {}, {})", d.x, d.y, d.z); }

std::atomic<int64_t> g_stack_bytes{1024};

}  // namespace

void set_stack_bytes(int64_t bytes) { g_stack_bytes = bytes; }
int64_t stack_bytes() { return g_stack_bytes; }

// ---- functions and modules

/// An entry that cannot be run refuses when it is to be: others of its module may be all that is wanted.
static const Program& program_of(const detail::FunctionData& function) {
  if (function.refusal != nullptr) std::rethrow_exception(function.refusal);
  return *function.program;
}

const std::string& Function::name() const { return data_->name; }

FunctionAttributes Function::attributes() const {
  FunctionAttributes a = program_of(*data_).attributes;
  a.max_dynamic_shared_bytes = data_->max_dynamic_shared;
  return a;
}

const std::vector<Parameter>& Function::parameters() const { return program_of(*data_).parameters; }

void Function::set_max_dynamic_shared(int64_t bytes) {
  const int64_t most = data_->target->max_shared_bytes - program_of(*data_).static_shared_bytes;
  if (bytes < 0 || bytes > most)
    fail(fmt::format("{}: {} bytes of dynamic shared memory are asked for, the target allows {}", name(),
                     bytes, most),
         {fmt::format("{} bytes per block, {} of them static", data_->target->max_shared_bytes,
                      data_->program->static_shared_bytes)});
  data_->max_dynamic_shared = bytes;
}

Function Module::function(std::string_view name) const {
  for (const std::shared_ptr<detail::FunctionData>& f : data_->functions)
    if (f->name == name) {
      Function out;
      out.data_ = f;
      return out;
    }
  const std::string nearest = nearest_word(name, data_->names);
  fail(fmt::format("the module has no kernel '{}'", name), {},
       nearest.empty() ? "" : fmt::format("did you mean '{}'?", nearest));
}

std::vector<std::string> Module::function_names() const { return data_->names; }

std::vector<std::pair<std::string, GlobalVariable>> Module::globals() const {
  std::vector<std::pair<std::string, GlobalVariable>> all;
  const std::vector<ptx::Variable>& variables = data_->image->tree().variables;
  for (uint32_t i = 0; i < variables.size(); ++i) {
    const ptx::Variable& v = variables[i];
    if (v.space != ptx::Space::global && v.space != ptx::Space::constant) continue;
    const VariableKind kind = is_managed(v)                     ? VariableKind::kManaged
                              : v.space == ptx::Space::constant ? VariableKind::kConstant
                                                                : VariableKind::kDevice;
    all.push_back({v.name, {data_->image->variable_address(i), v.size(), kind}});
  }
  return all;
}

GlobalVariable Module::global(std::string_view name) const {
  std::vector<std::string> names;
  for (const auto& [its_name, variable] : globals()) {
    if (its_name == name) return variable;
    names.push_back(its_name);
  }
  const std::string nearest = nearest_word(name, names);
  fail(fmt::format("the module has no variable '{}'", name), {},
       nearest.empty() ? "" : fmt::format("did you mean '{}'?", nearest));
}

// ---- the device

VirtualGpu::VirtualGpu(Options options) : data_(std::make_unique<detail::GpuData>()) {
  data_->target = &target_limits(options.target);
  if (options.memory_bytes <= 0) fail(fmt::format("memory_bytes is {}", options.memory_bytes));
  data_->memory = std::make_shared<GlobalMemory>(options.memory_bytes);
  data_->options = std::move(options);
}
VirtualGpu::VirtualGpu(Options options, const VirtualNode& node, int rank)
    : data_(std::make_unique<detail::GpuData>()) {
  data_->target = &target_limits(options.target);
  data_->memory = node.memory_;
  data_->rank = rank;
  data_->options = std::move(options);
}
VirtualGpu::~VirtualGpu() = default;
VirtualGpu::VirtualGpu(VirtualGpu&&) noexcept = default;
VirtualGpu& VirtualGpu::operator=(VirtualGpu&&) noexcept = default;

const Options& VirtualGpu::options() const { return data_->options; }

void VirtualGpu::set_options(const Options& options) {
  if (options.target != data_->options.target || options.memory_bytes != data_->options.memory_bytes)
    fail("target and memory size of a device stay as they were made", {}, "make another VirtualGpu");
  data_->options = options;
}

DeviceAddress VirtualGpu::allocate(int64_t bytes) {
  if (bytes < 0) fail(fmt::format("allocate: {} bytes are asked for", bytes));
  return data_->memory->allocate(static_cast<uint64_t>(bytes), "", 256, data_->gpu());
}

DeviceAddress VirtualGpu::allocate_host_visible(int64_t bytes) {
  if (bytes < 0) fail(fmt::format("allocate_host_visible: {} bytes are asked for", bytes));
  return data_->memory->allocate_host_visible(static_cast<uint64_t>(bytes), "");
}

int64_t VirtualGpu::heap_bytes() const { return data_->heap_bytes; }
void VirtualGpu::set_heap_bytes(int64_t bytes) {
  if (bytes < 0) fail(fmt::format("set_heap_bytes: {} bytes are asked for", bytes));
  if (data_->heap != nullptr)
    fail(fmt::format("set_heap_bytes: a kernel that allocates has been launched with a heap of {} bytes",
                     data_->heap_bytes),
         {}, "set the size before the first such launch");
  data_->heap_bytes = bytes;
}
void VirtualGpu::drop_heap() { data_->heap.reset(); }

DeviceAddress VirtualGpu::reserve_addresses(int64_t bytes, int64_t alignment) {
  if (bytes <= 0) fail(fmt::format("reserve_addresses: {} bytes are asked for", bytes));
  return data_->memory->reserve_addresses(static_cast<uint64_t>(bytes), static_cast<uint64_t>(alignment));
}
void VirtualGpu::map(DeviceAddress address, int64_t bytes, int file, int64_t offset) {
  data_->memory->map(address, static_cast<uint64_t>(bytes), file, static_cast<uint64_t>(offset));
}
void VirtualGpu::unmap(DeviceAddress address, int64_t bytes) {
  data_->memory->unmap(address, static_cast<uint64_t>(bytes));
}
int VirtualGpu::shared_file(DeviceAddress address, int64_t& offset) {
  offset = static_cast<int64_t>(address - kGlobalBase);
  return data_->memory->shared_file();
}

void VirtualGpu::free(DeviceAddress address, SourceLocation where) {
  if (!data_->memory->free(address, where))
    fail(fmt::format("free: 0x{:x} is not the start of a live allocation", address));
}

namespace {

std::byte* checked(const GlobalMemory& memory, DeviceAddress address, int64_t bytes, const char* call) {
  const Allocation* allocation = memory.find(address);
  if (bytes < 0) fail(fmt::format("{}: {} bytes", call, bytes));
  if (bytes > 0 && (allocation == nullptr || !allocation->contains(address, static_cast<uint64_t>(bytes)))) {
    std::vector<std::string> facts;
    if (const Allocation* near = memory.nearest(address))
      facts.push_back(fmt::format("nearest: {} at 0x{:x}, {} bytes", near->name, near->address, near->bytes));
    fail(fmt::format("{}: {} bytes at 0x{:x} are not inside one allocation", call, bytes, address),
         std::move(facts));
  }
  if (bytes > 0 && allocation->freed)
    fail(fmt::format("{}: {} at 0x{:x} has been freed", call, allocation->name, address),
         freed_where(*allocation));
  return memory.host(address);
}

}  // namespace

void VirtualGpu::copy_to_device(DeviceAddress to, const void* from, int64_t bytes) {
  std::byte* host = checked(*data_->memory, to, bytes, "copy_to_device");
  if (bytes == 0) return;
  std::memcpy(host, from, static_cast<size_t>(bytes));
  data_->memory->mark_written(to, static_cast<uint64_t>(bytes));
}

void VirtualGpu::copy_from_device(void* to, DeviceAddress from, int64_t bytes) const {
  const std::byte* host = checked(*data_->memory, from, bytes, "copy_from_device");
  if (bytes > 0) std::memcpy(to, host, static_cast<size_t>(bytes));
}

void VirtualGpu::copy_on_device(DeviceAddress to, DeviceAddress from, int64_t bytes) {
  const std::byte* source = checked(*data_->memory, from, bytes, "copy_on_device");
  std::byte* target = checked(*data_->memory, to, bytes, "copy_on_device");
  if (bytes == 0) return;
  std::memmove(target, source, static_cast<size_t>(bytes));
  data_->memory->copy_written(to, from, static_cast<uint64_t>(bytes));
}

void VirtualGpu::fill(DeviceAddress to, uint8_t value, int64_t bytes) {
  std::byte* host = checked(*data_->memory, to, bytes, "fill");
  if (bytes == 0) return;
  if (value == 0) return data_->memory->zero(to, static_cast<uint64_t>(bytes));
  std::memset(host, value, static_cast<size_t>(bytes));
  data_->memory->mark_written(to, static_cast<uint64_t>(bytes));
}

void VirtualGpu::discard(DeviceAddress at, int64_t bytes) {
  fill(at, 0xFF, bytes);
  data_->memory->forget_written(at, static_cast<uint64_t>(bytes));
}

void VirtualGpu::fill16(DeviceAddress to, uint16_t value, int64_t count) {
  std::byte* host = checked(*data_->memory, to, count * 2, "fill16");
  for (int64_t i = 0; i < count; ++i) std::memcpy(host + i * 2, &value, 2);
  if (count > 0) data_->memory->mark_written(to, static_cast<uint64_t>(count) * 2);
}

void VirtualGpu::fill32(DeviceAddress to, uint32_t value, int64_t count) {
  std::byte* host = checked(*data_->memory, to, count * 4, "fill32");
  if (value == 0 && count > 0) return data_->memory->zero(to, static_cast<uint64_t>(count) * 4);
  for (int64_t i = 0; i < count; ++i) std::memcpy(host + i * 4, &value, 4);
  if (count > 0) data_->memory->mark_written(to, static_cast<uint64_t>(count) * 4);
}

Module VirtualGpu::load_module(std::string_view ptx, std::string_view name) {
  auto image = std::make_shared<ModuleImage>(ptx, name, data_->memory, *data_->target, data_->gpu());
  const std::string& wanted = image->tree().target;
  if (TargetName::parse(wanted).has_value()) {
    if (!runs_code_of(data_->target->name, wanted))
      fail(fmt::format("{} is for {}, the device is {}", name, wanted, data_->options.target), {},
           "make the VirtualGpu with that target");
  }
  Module out;
  out.data_ = std::make_shared<detail::ModuleData>();
  out.data_->image = image;
  for (const ptx::Function& f : image->tree().functions) {
    if (!f.is_entry || !f.has_body) continue;
    auto data = std::make_shared<detail::FunctionData>();
    data->name = f.name;
    try {
      data->program = ProgramBuilder(*image, f).build();
      data->max_dynamic_shared = data->program->attributes.max_dynamic_shared_bytes;
    } catch (const CompileError&) {
      data->refusal = std::current_exception();
    } catch (const ParseError&) {
      data->refusal = std::current_exception();
    }
    data->image = image;
    data->target = data_->target;
    out.data_->names.push_back(f.name);
    out.data_->functions.push_back(std::move(data));
  }
  const std::vector<std::shared_ptr<detail::FunctionData>>& functions = out.data_->functions;
  const bool none_runs =
      std::all_of(functions.begin(), functions.end(), [](const auto& f) { return f->refusal != nullptr; });
  if (none_runs && !functions.empty()) std::rethrow_exception(functions.front()->refusal);
  if (none_runs && !image->unread().empty()) throw image->unread().begin()->second;
  return out;
}

// ---- launches

namespace {

void check_extents(const Launch& launch, const Program& program, const Target& target, const Dim3& cluster) {
  const std::string& name = program.name;
  const FunctionAttributes& a = program.attributes;
  const Dim3 &grid = launch.grid, &block = launch.block;
  if (grid.x < 1 || grid.y < 1 || grid.z < 1 || grid.x > 0x7FFFFFFF || grid.y > 65535 || grid.z > 65535)
    fail(fmt::format("{}: a grid of {} CTAs", name, text_of(grid)), {"limits: (2147483647, 65535, 65535)"});
  if (block.x < 1 || block.y < 1 || block.z < 1 || block.x > 1024 || block.y > 1024 || block.z > 64 ||
      block.count() > 1024)
    fail(fmt::format("{}: a block of {} threads", name, text_of(block)),
         {"limits: (1024, 1024, 64), 1024 in all"});
  if (block.count() > a.max_threads)
    fail(fmt::format("{}: a block of {} threads, the kernel allows {}", name, block.count(), a.max_threads));
  if (a.required_block.x > 0 && !(a.required_block == block))
    fail(fmt::format("{}: a block of {}, the kernel requires {}", name, text_of(block),
                     text_of(a.required_block)));
  if (cluster.x < 1 || cluster.y < 1 || cluster.z < 1 || cluster.count() > target.max_cluster)
    fail(fmt::format("{}: clusters of {} CTAs, the target allows {}", name, text_of(cluster),
                     target.max_cluster));
  if (grid.x % cluster.x != 0 || grid.y % cluster.y != 0 || grid.z % cluster.z != 0)
    fail(fmt::format("{}: clusters of {} do not divide the grid of {}", name, text_of(cluster),
                     text_of(grid)));
}

std::vector<std::byte> parameter_bytes(const Launch& launch, const Program& program) {
  std::vector<std::byte> bytes(static_cast<size_t>(program.attributes.parameter_bytes), std::byte{0});
  if (launch.arguments.empty() && !launch.parameter_buffer.empty()) {
    if (launch.parameter_buffer.size() < bytes.size())
      fail(fmt::format("{}: a parameter buffer of {} bytes, the kernel has {} bytes of parameters",
                       program.name, launch.parameter_buffer.size(), bytes.size()));
    if (!bytes.empty()) std::memcpy(bytes.data(), launch.parameter_buffer.data(), bytes.size());
    return bytes;
  }
  if (launch.arguments.size() != program.parameters.size())
    fail(fmt::format("{}: {} arguments, the kernel has {} parameters", program.name, launch.arguments.size(),
                     program.parameters.size()));
  for (size_t i = 0; i < program.parameters.size(); ++i) {
    const Parameter& p = program.parameters[i];
    if (launch.arguments[i] == nullptr)
      fail(fmt::format("{}: argument {} ({}) is null", program.name, i, p.name));
    std::memcpy(bytes.data() + p.offset, launch.arguments[i], static_cast<size_t>(p.bytes));
  }
  return bytes;
}

/// CTAs of a kernel that its registers leave room for on one SM: those of its machine code, or an estimate from its PTX.
int64_t register_occupancy(const Launch& launch, detail::FunctionData& function) {
  constexpr int64_t kOfPart = 16384, kParts = 4, kUnit = 8, kMost = 255;
  const Program& program = *function.program;
  std::call_once(function.estimated, [&] {
    function.machine = assembled_costs(program, std::string(function.target->name), function.target->sm);
    std::string ptx;
    if (!function.machine)
      for (const std::string& line : *program.text) ptx += line + '\n';
    const int64_t needed =
        function.machine ? function.machine->registers : ptx::register_pressure(ptx, program.name).estimate;
    function.registers = (std::clamp<int64_t>(needed, kUnit, kMost) + kUnit - 1) / kUnit * kUnit;
  });
  const int64_t warps = kOfPart / (function.registers * 32) * kParts;
  return std::max<int64_t>(1, warps / ((launch.block.count() + 31) / 32));
}

/// CTAs of a kernel that fit on one SM.
int64_t occupancy(const Launch& launch, const Program& program, const Target& target) {
  const int64_t threads = (launch.block.count() + 31) / 32 * 32;
  const int64_t shared = (program.static_shared_bytes + launch.dynamic_shared_bytes + 127) / 128 * 128 +
                         target.reserved_shared_bytes;
  return std::max<int64_t>(1, std::min({target.max_ctas_per_sm, target.max_threads_per_sm / threads,
                                        target.shared_bytes_per_sm / shared}));
}

/// Leaves CTAs out as Options::sampled_ctas asks: those of a larger grid that run lie as far apart as they can, ends
/// included. CTAs of a cooperative launch wait for each other.
void leave_out(LaunchContext& launch) {
  const int64_t all = launch.clusters().count(), of_cluster = launch.grid.count() / all;
  const int64_t count = (launch.options.sampled_ctas + of_cluster - 1) / of_cluster;
  if (count < 1 || count >= all || launch.cooperative_workspace != 0) return;
  for (int64_t i = 0; i < count; ++i) launch.chosen.push_back(count == 1 ? 0 : i * (all - 1) / (count - 1));
  launch.ctas_left_out = (all - count) * of_cluster;
}

}  // namespace

/// IMBREX_HOST_THREADS=N lets any program's launches run on N threads, which is how the sanitizers get to see
/// them.
int host_threads(const Options& options) {
  const char* told = std::getenv("IMBREX_HOST_THREADS");
  const int asked = told != nullptr ? std::atoi(told) : options.host_threads;
  return asked > 0 ? asked : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

/// The driver's: cooperative groups keep the grid's barrier in its second word.
constexpr int64_t kCooperativeWorkspace = 32;

std::unique_ptr<VirtualGpu::Prepared> VirtualGpu::prepare(const Function& function, const Launch& launch) {
  if (function.data_ == nullptr) fail("launch: the function is empty");
  const Program& program = program_of(*function.data_);
  const Target& target = *data_->target;
  const Dim3 required = program.attributes.required_cluster;
  const Dim3 cluster = launch.cluster == Dim3{} && required.x > 0 ? required : launch.cluster;
  check_extents(launch, program, target, cluster);
  if (launch.dynamic_shared_bytes < 0 || launch.dynamic_shared_bytes > function.data_->max_dynamic_shared)
    fail(fmt::format("{}: {} bytes of dynamic shared memory, the kernel allows {}", program.name,
                     launch.dynamic_shared_bytes, function.data_->max_dynamic_shared),
         {}, "call Function::set_max_dynamic_shared first");
  const std::vector<std::byte> parameters = parameter_bytes(launch, program);
  if (parameters.size() > kParamBytes)
    fail(fmt::format("{}: {} bytes of parameters", program.name, parameters.size()));
  GlobalMemory& memory = *data_->memory;
  memory.settle_missed_writes();
  const uint64_t base = param_base(data_->gpu());
  memory.remove(base);
  memory.place(base, parameters.size(), fmt::format("parameters of {}", program.name));
  if (!parameters.empty()) std::memcpy(memory.host(base), parameters.data(), parameters.size());

  const int num_sms = data_->options.num_sms > 0 ? data_->options.num_sms : sm_count(target);
  std::unique_ptr<Prepared> prepared(
      new Prepared{function.data_->program,
                   {program, memory, data_->options, target, launch.grid, cluster, launch.block}});
  LaunchContext& context = prepared->context;
  context.explicit_cluster = launch.explicit_cluster || !(launch.cluster == Dim3{}) || required.x > 0;
  context.dynamic_shared_bytes = static_cast<uint32_t>(launch.dynamic_shared_bytes);
  context.num_sms = num_sms;
  context.grid_id = ++data_->launches;
  context.stack_bytes = stack_bytes();
  context.rank = data_->rank;
  if (program.allocates) {
    if (data_->heap == nullptr)
      data_->heap =
          std::make_unique<DeviceHeap>(memory, static_cast<uint64_t>(data_->heap_bytes), data_->gpu());
    context.heap = data_->heap.get();
  }
  prepared->ctas_per_sm = occupancy(launch, program, target);
  if (data_->options.timeline.record && program.habits.heeds_other_clusters) context.flags = &prepared->flags;
  if (data_->options.timeline.record)
    prepared->predicted_ctas_per_sm =
        std::min(prepared->ctas_per_sm, register_occupancy(launch, *function.data_));
  const int64_t slots = std::max<int64_t>(1, num_sms * prepared->ctas_per_sm / cluster.count());
  prepared->slots = static_cast<int>(std::min<int64_t>(slots, INT32_MAX));
  if (launch.cooperative) {
    if (launch.grid.count() > slots * cluster.count())
      fail(fmt::format("{}: a cooperative launch of {} CTAs, {} fit on the device at once", program.name,
                       launch.grid.count(), slots * cluster.count()));
    if (data_->cooperative_workspace == 0) data_->cooperative_workspace = allocate(kCooperativeWorkspace);
    fill(data_->cooperative_workspace, 0, kCooperativeWorkspace);
    context.cooperative_workspace = data_->cooperative_workspace;
  }
  if (launch.stream && data_->options.checks.stream_order) {
    if (!data_->footprint) data_->footprint = std::make_unique<FootprintRecorder>(memory.size());
    context.footprint = data_->footprint.get();
    prepared->stream = launch.stream;
    prepared->where = launch.where;
  }
  return prepared;
}

void VirtualGpu::finish(const Prepared& prepared, Grid& grid, size_t n, Report& report) {
  const LaunchContext& context = prepared.context;
  const Program& program = *prepared.program;
  if (!data_->options.checks.any() || !report.completed || !context.chosen.empty())
    data_->memory->miss_writes();
  if (context.footprint != nullptr)
    for (Finding& race :
         judge(*prepared.stream, {fmt::format("launch of '{}'", program.name), prepared.where},
               data_->footprint->take()))
      report.findings.push_back(std::move(race));
  const bool is_predicted = data_->options.timeline.record && report.completed && report.ctas_left_out == 0;
  if (!is_predicted || context.signals != nullptr) return;  // those of a node are replayed together
  std::optional<Timeline> timeline =
      predict_sample(replay_context(*data_->target, context, prepared.predicted_ctas_per_sm),
                     grid.take_recordings(n), prepared.sample);
  if (!timeline) return;
  timeline->target = data_->options.target;
  report.timeline = std::make_shared<const Timeline>(std::move(*timeline));
}

ReplayContext replay_context(const Target& target, const LaunchContext& launch, int64_t ctas_per_sm) {
  const TimelineOptions& wanted = launch.options.timeline;
  constexpr int64_t kLeastL1 = 28 << 10;
  const int64_t of_cta =
      launch.program.static_shared_bytes + launch.dynamic_shared_bytes + target.reserved_shared_bytes;
  ReplayContext context{launch.program,
                        cost_model(target.sm, wanted.clock_ghz, wanted.gpu.get()),
                        chip_rates(target.sm),
                        launch.num_sms,
                        ctas_per_sm,
                        TensorMemory::kColumns,
                        wanted.cta,
                        kLeastL1 + std::max<int64_t>(0, target.shared_bytes_per_sm - ctas_per_sm * of_cta),
                        wanted.explain};
  context.groups = sm_groups(target.sm, launch.num_sms, context.model.sms);
  return context;
}

Report VirtualGpu::launch(const Function& function, const Launch& launch) {
  const std::unique_ptr<Prepared> prepared = prepare(function, launch);
  LaunchContext& context = prepared->context;
  const int threads = host_threads(data_->options);
  std::optional<GlobalRaces> races;
  if (data_->options.checks.races && data_->options.checks.global_races &&
      context.clusters().count() <= kMaxTrackedClusters)
    context.global_races = &races.emplace(data_->memory->size(), threads > 1);
  context.rank = -1;  // it runs alone
  int64_t at_once = prepared->slots;
  if (data_->options.timeline
          .record) {  // on the chip whose time is predicted, whose groups of SMs hold whole clusters
    const ReplayContext replayed = replay_context(*data_->target, context, prepared->predicted_ctas_per_sm);
    at_once = std::ssize(cluster_places(replayed.groups, context.cluster.count())) * replayed.ctas_per_sm;
  }
  prepared->sample = plan_sample(context, at_once, launch.cooperative);
  context.chosen = prepared->sample.chosen;
  context.recorded_works = prepared->sample.recorded_works;
  context.whole = prepared->sample.whole;
  if (context.chosen.empty()) leave_out(context);
  const auto run = [&] {
    const ResidentLaunch resident{&context, prepared->slots};
    Grid grid({&resident, 1});
    std::vector<Report> reports = grid.run(threads);
    finish(*prepared, grid, 0, reports.front());
    return std::move(reports.front());
  };
  Report report = run();
  if (context.recorded_works > 0 && report.completed && report.timeline == nullptr) {
    context.recorded_works = 0;  // nothing repeats in what was recorded
    report = run();
  }
  return report;
}

StreamOrder& VirtualGpu::order() { return data_->order; }

std::vector<Finding> VirtualGpu::judge(StreamOrder::Stream stream, const HostCall& call,
                                       const Footprint& footprint) {
  if (!data_->options.checks.stream_order) return {};
  std::vector<Finding> findings = data_->order.perform(stream, call, footprint);
  for (Finding& finding : findings)
    if (const Allocation* allocation = data_->memory->find(finding.address))
      finding.facts.push_back(fmt::format("{} [0x{:x}, 0x{:x}), {} bytes", allocation->name,
                                          allocation->address, allocation->address + allocation->bytes,
                                          allocation->bytes));
  return findings;
}

}  // namespace imbrex::vgpu
