// SPDX-License-Identifier: Apache-2.0
#include "cuda_host/host/work.h"

#include <fmt/format.h>

#include <cstring>

#include "cuda_host/host/host.h"
#include "cuda_host/host/host_threads.h"
#include "cuda_host/host/progress.h"
#include "imbrex/core/error.h"
#include "vgpu/stack_limit.h"

namespace imbrex::cuda {
namespace {

/// How a GPU would have ended the context; CUDA_SUCCESS where it would have gone on.
CUresult failure_of(const vgpu::Report& report) {
  using vgpu::FindingKind;
  for (const vgpu::Finding& finding : report.findings) switch (finding.kind) {
      case FindingKind::kOutOfBounds:
      case FindingKind::kUseAfterFree:
        if (Host::get().memory.would_fault(finding.address)) return CUDA_ERROR_ILLEGAL_ADDRESS;
        break;
      case FindingKind::kMisaligned:
        return CUDA_ERROR_MISALIGNED_ADDRESS;
      case FindingKind::kDeadlock:
      case FindingKind::kEndlessRun:
        return CUDA_ERROR_LAUNCH_TIMEOUT;
      case FindingKind::kTrap:
        return finding.message.find("ssert") != std::string::npos ? CUDA_ERROR_ASSERT
                                                                  : CUDA_ERROR_LAUNCH_FAILED;
      case FindingKind::kIllegalInstruction:
        return CUDA_ERROR_ILLEGAL_INSTRUCTION;
      default:
        break;
    }
  return report.completed ? CUDA_SUCCESS : CUDA_ERROR_LAUNCH_FAILED;
}

bool is_chosen(const Host& host, const std::string& kernel) {
  if (!host.settings.launches.contains(host.log.launches() + 1)) return false;
  if (host.settings.kernels.empty()) return true;
  const std::string name = demangled(kernel);
  // What a person calls a C++ kernel: without its template arguments and parameters.
  const std::string plain = name.substr(0, name.find_first_of("(<"));
  for (const std::string& pattern : host.settings.kernels)
    if (matches(pattern, kernel) || matches(pattern, name) || matches(pattern, plain)) return true;
  return false;
}

/// A pointer that is none of the device's: null, or of the host.
void explain_foreign_address(vgpu::Finding& finding) {
  constexpr uint64_t kNearNull = 1 << 16;
  if (finding.address < kNearNull) {
    finding.facts.push_back("this is a null pointer, or one counted from it");
    if (finding.hint.empty())
      finding.hint = "check that each cudaMalloc has succeeded, and that the pointer is passed to the kernel";
  } else if (!DeviceMemory::is_of_device(finding.address)) {
    finding.facts.push_back(
        "this is an address of the host: of a variable, of malloc or of new, which no kernel can reach");
    finding.hint =
        "copy to memory of cudaMalloc, or allocate with cudaMallocManaged or cudaMallocHost; memory of "
        "cudaHostRegister has a device address, by cudaHostGetDevicePointer";
  }
}

void run(const LaunchWork& work, Stream& stream) {
  Host& host = Host::get();
  vgpu::Launch launch;
  launch.grid = work.grid;
  launch.block = work.block;
  launch.cluster = work.cluster;
  launch.explicit_cluster = work.explicit_cluster;
  launch.dynamic_shared_bytes = work.dynamic_shared_bytes;
  launch.cooperative = work.cooperative;
  launch.parameter_buffer = work.parameters;
  const std::string kernel = work.function->function.name();
  const bool is_checked = host.settings.options.checks.any() && is_chosen(host, kernel);
  // Calls that no stream, event or wait orders race; unchecked launches count as waited for.
  if (is_checked && host.settings.options.checks.stream_order) launch.stream = stream.order;
  vgpu::Options options = host.settings.options;
  if (!is_checked) options.checks = vgpu::CheckSet::none();
  Interruptible interruptible(host.settings.progress);
  options.watch = interruptible.watch();
  if (stream.context != nullptr) vgpu::set_stack_bytes(stream.context->stack_bytes());
  host.gpu.set_options(options);
  vgpu::Report report = host.gpu.launch(work.function->function, launch);
  for (vgpu::Finding& finding : report.findings)
    if (finding.kind == vgpu::FindingKind::kEndlessRun || finding.kind == vgpu::FindingKind::kDeadlock)
      finding.facts.push_back(
          "here a launch is over when its call returns: a kernel that waits for what the host, or a later "
          "launch, "
          "writes waits for ever");
  for (vgpu::Finding& finding : report.findings)
    if (finding.kind == vgpu::FindingKind::kOutOfBounds &&
        finding.message.find("global memory") != std::string::npos)
      explain_foreign_address(finding);
  // Other threads may make calls while the place is found, and end the stream.
  Context* const context = stream.context;
  const uint64_t stream_id = stream.id;
  if (!report.findings.empty())
    if (const std::string place = place_of_launch(demangled(kernel)); !place.empty())
      for (vgpu::Finding& finding : report.findings) finding.facts.push_back("launched in " + place);
  if (!report.printf_output.empty()) {
    std::fwrite(report.printf_output.data(), 1, report.printf_output.size(), stdout);
    std::fflush(stdout);
  }
  host.log.launched(kernel, stream_id, is_checked, report);
  interruptible.end(host.log);
  if (context != nullptr) context->failure = failure_of(report);
}

/// What a copy or a fill does to memory, judged with what other calls did to it.
void judge(const char* what, Stream& stream, const vgpu::Footprint& footprint) {
  Host& host = Host::get();
  for (const vgpu::Finding& finding : host.gpu.judge(stream.order, {what, {}}, footprint))
    host.log.add(what, finding);
}

/// The rows that a copy reads and writes.
vgpu::Footprint footprint(const CopyWork& work) {
  const int64_t rows = work.height * work.depth;
  if (work.width == 0 || rows == 0) return {};
  vgpu::Footprint all;
  for (int64_t z = 0; z < work.depth; ++z)
    for (int64_t y = 0; y < work.height; ++y) {
      const auto row = [&](const PitchedSide& side) {
        const uint64_t begin = side.address + static_cast<uint64_t>(z * side.slice + y * side.pitch);
        return vgpu::ByteRange{begin, begin + static_cast<uint64_t>(work.width)};
      };
      all.read.push_back(row(work.from));
      all.written.push_back(row(work.to));
    }
  return all;
}

/// In pieces where there are no rows.
void copy(const CopyWork& work) {
  DeviceMemory& memory = Host::get().memory;
  if (work.height * work.depth != 1)
    return memory.copy(work.to, work.from, work.width, work.height, work.depth);
  in_pieces("a copy", work.width, true, [&](int64_t first, int64_t count) {
    const auto from = static_cast<uint64_t>(first);
    memory.copy({work.to.address + from}, {work.from.address + from}, count, 1, 1);
  });
}
void fill(const FillWork& work) {
  DeviceMemory& memory = Host::get().memory;
  if (work.height != 1)
    return memory.fill(work.to, work.pitch, work.value, work.element_bytes, work.width, work.height);
  // Zeros take no memory.
  in_pieces("a fill", work.width * work.element_bytes, work.value != 0, [&](int64_t first, int64_t count) {
    memory.fill(work.to + static_cast<uint64_t>(first), 0, work.value, work.element_bytes,
                count / work.element_bytes, 1);
  });
}

struct Performer {
  Stream& stream;

  void operator()(const EmptyWork&) const {}
  void operator()(const LaunchWork& work) const { run(work, stream); }
  void operator()(const CopyWork& work) const {
    copy(work);
    judge("copy", stream, footprint(work));
    // Copies into memory that is not pinned have ended when the call returns.
    const uint64_t to = work.to.address;
    if (!DeviceMemory::is_of_device(to) &&
        Host::get().memory.find_registered(reinterpret_cast<const void*>(to)) == nullptr)
      Host::get().gpu.order().synchronize(stream.order);
  }
  void operator()(const FillWork& work) const {
    fill(work);
    const CopyWork rows{{work.to, work.pitch}, {}, work.width * work.element_bytes, work.height, 1};
    vgpu::Footprint touched = footprint(rows);
    touched.read.clear();
    judge("fill", stream, touched);
  }
  void operator()(const HostWork& work) const {
    const ProgramsTurn turn;
    const HostFunctionScope scope;
    work.function(work.data);
  }
  void operator()(const AllocateWork&) const {}
  void operator()(const FreeWork& work) const {
    Host& host = Host::get();
    if (const Block* block = host.memory.find(work.address); block != nullptr)
      judge("free", stream, vgpu::Footprint::of_write(block->address, block->bytes));
    host.memory.free(work.address, MemoryKind::kDevice);
  }
  void operator()(const RecordWork& work) const { record_event(stream, *work.event); }
  void operator()(const WaitWork& work) const { wait_event(stream, *work.event); }
  void operator()(const ChildWork& work) const {
    for (const GraphNode* node : work.graph->in_order())
      if (node->is_enabled) perform(node->work, stream);
  }
};

}  // namespace

void perform(const Work& work, Stream& stream) {
  if (const auto* host = std::get_if<HostWork>(&work); host != nullptr) {
    Performer{stream}(*host);  // which sees registered memory as it is
    return;
  }
  DeviceMemory& memory = Host::get().memory;
  memory.push_registered();
  std::visit(Performer{stream}, work);
  memory.pull_registered();
}

std::vector<std::byte> pack_parameters(const FunctionObject& function, void** parameters, void** extra) {
  const std::vector<vgpu::Parameter>& wanted = function.function.parameters();
  std::vector<std::byte> packed(static_cast<size_t>(function.function.attributes().parameter_bytes));
  if (extra != nullptr) {
    constexpr uintptr_t kEnd = 0, kBuffer = 1, kSize = 2;
    const void* buffer = nullptr;
    size_t bytes = 0;
    for (; reinterpret_cast<uintptr_t>(extra[0]) != kEnd; extra += 2) {
      if (reinterpret_cast<uintptr_t>(extra[0]) == kBuffer) buffer = extra[1];
      if (reinterpret_cast<uintptr_t>(extra[0]) == kSize) bytes = *static_cast<const size_t*>(extra[1]);
    }
    if (!packed.empty() && (buffer == nullptr || bytes < packed.size()))
      refuse(CUDA_ERROR_INVALID_VALUE,
             fmt::format("a parameter buffer of {} bytes, {} has {} bytes of parameters", bytes,
                         demangled(function.function.name()), packed.size()));
    if (!packed.empty()) std::memcpy(packed.data(), buffer, packed.size());
    return packed;
  }
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (parameters == nullptr || parameters[i] == nullptr)
      refuse(CUDA_ERROR_INVALID_VALUE,
             fmt::format("argument {} of {} is null", i, demangled(function.function.name())));
    std::memcpy(packed.data() + wanted[i].offset, parameters[i], static_cast<size_t>(wanted[i].bytes));
  }
  return packed;
}

LaunchWork launch_work(const CUlaunchConfig& config, CUfunction handle, void** parameters, void** extra) {
  LaunchWork work;
  work.function = &Host::get().function(handle);
  // Kernels of libraries are launched as they are; who asks a graph's node for one gets it back.
  work.kernel = Host::get().kernels.find(reinterpret_cast<CUkernel>(handle));
  work.grid = {config.grid_x, config.grid_y, config.grid_z};
  work.block = {config.block_x, config.block_y, config.block_z};
  work.dynamic_shared_bytes = config.shared_bytes;
  for (unsigned i = 0; i < config.attribute_count; ++i) {
    const CUlaunchAttribute& attribute = config.attributes[i];
    if (attribute.id == kLaunchClusterDimension) {
      work.cluster = {attribute.value.cluster.x, attribute.value.cluster.y, attribute.value.cluster.z};
      work.explicit_cluster = true;
    }
    if (attribute.id == kLaunchCooperative) work.cooperative = attribute.value.cooperative != 0;
    if (attribute.id == kLaunchProgrammaticEvent && attribute.value.programmatic_event.event != nullptr)
      Host::get().events.get(attribute.value.programmatic_event.event).is_recorded = true;
    if (attribute.id == kLaunchCompletionEvent && attribute.value.completion_event.event != nullptr)
      Host::get().events.get(attribute.value.completion_event.event).is_recorded = true;
    // The others are hints about time, which change no result: priority, policy, serialisation, carve-out.
  }
  check_limits(work);
  work.parameters = pack_parameters(*work.function, parameters, extra);
  return work;
}

}  // namespace imbrex::cuda
