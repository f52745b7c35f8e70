// SPDX-License-Identifier: Apache-2.0
#include "mutants/subject.h"

#include <fmt/format.h>

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "codegen/codegen.h"
#include "imbrex/core/error.h"
#include "imbrex/vgpu/virtual_node.h"
#include "ir/ir.h"
#include "passes/pipeline.h"
#include "ptx/reader.h"
#include "runtime/device/backend.h"
#include "runtime/device/machine.h"
#include "runtime/launch/host_program.h"
#include "runtime/parallel/meeting.h"

namespace imbrex::mutants {

namespace {

// A mutant that spins is told from one that works by these; the kernels themselves need a fraction.
constexpr int64_t kInstructions = 2'000'000, kStall = 100'000;
constexpr int64_t kDeviceMemory = int64_t{64} << 20;
constexpr int kFindings = 4;

}  // namespace

Subject detail::make_subject(std::string name, std::shared_ptr<ir::Function> function) {
  passes::run_pipeline(*function);
  Subject subject;
  subject.name = std::move(name);
  // The PTX that ships: without the traps of assumptions.
  subject.kernel = codegen::generate(*function, {});
  subject.module = ptx::read(subject.kernel.ptx, subject.kernel.name);
  return subject;
}

namespace {

/// The problem's tensors on one device. Inputs are other numbers on each rank.
struct Problem {
  Problem(const Subject& subject, runtime::DeviceBackend& device, int rank,
          const std::function<uint64_t(int64_t bytes)>& allocate_symmetric)
      : subject(subject), device(device), rank(rank) {
    for (size_t i = 0; i < subject.tensors.size(); ++i) {
      const TensorArgument& tensor = subject.tensors[i];
      HostTensor host(tensor.dtype, tensor.shape);
      if (!tensor.values.empty())
        for (size_t k = 0; k < tensor.values.size(); ++k)
          host.set(static_cast<int64_t>(k), static_cast<double>(tensor.values[k]));
      else if (!tensor.is_output && !tensor.is_zeroed)
        host = HostTensor::random(tensor.dtype, tensor.shape, i + 1 + 100 * static_cast<uint64_t>(rank));
      const auto bytes = static_cast<int64_t>(host.bytes().size());
      if (tensor.is_symmetric) {
        const uint64_t base = allocate_symmetric(bytes);
        given.push_back(base + static_cast<uint64_t>(tensor.bytes_per_rank * rank));
        addresses.push_back(base + static_cast<uint64_t>(rank * rank_stride_bytes()));
      } else {
        given.push_back(device.allocate(bytes));
        addresses.push_back(given.back());
      }
      if (tensor.is_output) {
        device.fill(addresses.back(), 0xFF, bytes);
        device.scratch_taken(addresses.back(), bytes, {device.stream()});  // nobody has written it
      } else {
        device.copy_to_device(addresses.back(), host.bytes().data(), bytes);
      }
    }
  }
  void launch(const codegen::CompiledKernel& kernel, Outcome& outcome) const {
    std::vector<int64_t> arguments, slots(kernel.host.size());
    for (const Subject::Value& value : subject.arguments) arguments.push_back(argument_of(value));
    runtime::evaluate_host(kernel, arguments, slots);
    std::vector<std::byte> params(kernel.param_bytes);
    runtime::pack_params(kernel, arguments, slots, device, params.data());
    runtime::LaunchPlan plan;
    for (int i = 0; i < 3; ++i)
      if (kernel.grid_slots[i] >= 0) plan.grid[i] = slots[kernel.grid_slots[i]];
    plan.params = params;
    plan.stream = device.stream();
    const std::shared_ptr<runtime::LoadedKernel> loaded = device.load(kernel);
    vgpu::Report report = device.launch(*loaded, plan).virtual_report;
    outcome.findings.insert(outcome.findings.end(), report.findings.begin(), report.findings.end());
    outcome.notes.insert(outcome.notes.end(), report.notes.begin(), report.notes.end());
    device.synchronize();
  }
  int64_t argument_of(const Subject::Value& value) const {
    if (value.is_rank) return rank;
    if (value.tensor < 0) return value.number;
    return static_cast<int64_t>((value.is_own ? addresses : given)[static_cast<size_t>(value.tensor)]);
  }
  void read_results(Outcome& outcome) const {
    for (size_t i = 0; i < subject.tensors.size(); ++i) {
      const TensorArgument& tensor = subject.tensors[i];
      if (!tensor.is_compared) continue;
      HostTensor host(tensor.dtype, tensor.shape);
      device.copy_from_device(host.bytes().data(), addresses[i], static_cast<int64_t>(host.bytes().size()));
      outcome.results.insert(outcome.results.end(), host.bytes().begin(), host.bytes().end());
    }
  }

  const Subject& subject;
  runtime::DeviceBackend& device;
  int rank;
  std::vector<uint64_t> given, addresses;  // what the kernel is given, and where the tensor is
};

Outcome run_on(const std::shared_ptr<runtime::DeviceBackend>& device, const Subject& subject,
               const codegen::CompiledKernel& kernel) {
  Outcome outcome;
  try {
    const Problem problem(subject, *device, 0, {});
    problem.launch(kernel, outcome);
    problem.read_results(outcome);
  } catch (const Error& error) {
    outcome.refused = error.what();
  }
  return outcome;
}

/// All ranks of a node, each a thread, as run_ranks() has them. A second launch finds the signals of the first.
Outcome run_on_ranks(const vgpu::Options& options, const Subject& subject,
                     const codegen::CompiledKernel& kernel) {
  constexpr double kPatience = 600;
  const auto count = static_cast<size_t>(subject.ranks);
  const auto node = std::make_shared<vgpu::VirtualNode>(subject.ranks, options);
  const auto turn = std::make_shared<std::mutex>();
  runtime::Meeting meeting(subject.ranks, node, kPatience);
  std::vector<std::shared_ptr<runtime::DeviceBackend>> devices;
  std::vector<std::unique_ptr<Problem>> problems;
  std::map<size_t, uint64_t> symmetric;  // by number of the tensor: one allocation for all ranks
  for (int rank = 0; rank < subject.ranks; ++rank) {
    const auto launch = [&meeting, rank](const vgpu::Function& function, const vgpu::Launch& call) {
      return meeting.launch(rank, function, call);
    };
    devices.push_back(runtime::make_virtual_device(runtime::make_rank_machine(node, rank, launch), turn));
    size_t next = 0;
    problems.push_back(std::make_unique<Problem>(subject, *devices.back(), rank, [&](int64_t bytes) {
      const auto [at, is_new] = symmetric.try_emplace(next++);
      if (is_new) at->second = node->allocate_symmetric(bytes);
      return at->second;
    }));
  }
  node->barrier();
  std::vector<Outcome> outcomes(count);
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < count; ++rank)
    threads.emplace_back([&, rank] {
      std::string why;
      try {
        for (int launch = 0; launch < 2 && outcomes[rank].findings.empty(); ++launch)
          problems[rank]->launch(kernel, outcomes[rank]);
        problems[rank]->read_results(outcomes[rank]);
      } catch (const Error& error) {
        why = outcomes[rank].refused = error.what();
      }
      meeting.end(static_cast<int>(rank), why);
    });
  for (std::thread& thread : threads) thread.join();
  // Findings first: where one rank's launch ends with one, the others cannot go on.
  Outcome all;
  for (Outcome& one : outcomes) {
    all.findings.insert(all.findings.end(), one.findings.begin(), one.findings.end());
    all.notes.insert(all.notes.end(), one.notes.begin(), one.notes.end());
    all.results.insert(all.results.end(), one.results.begin(), one.results.end());
  }
  if (all.findings.empty())
    for (const Outcome& one : outcomes)
      if (all.refused.empty()) all.refused = one.refused;
  return all;
}

vgpu::Options options_for(const Subject& subject, const std::string& target, uint64_t seed) {
  vgpu::Options options;
  options.target = target;
  options.num_sms = subject.num_sms;
  options.host_threads = 1;
  options.seed = seed;
  options.checks = vgpu::CheckSet::all();
  options.instruction_budget = kInstructions;
  options.stall_budget = kStall;
  options.memory_bytes = kDeviceMemory;
  options.max_findings = kFindings;
  return options;
}

}  // namespace

int64_t rank_stride_bytes() {
  vgpu::Options options;
  options.memory_bytes = kDeviceMemory;
  static const int64_t stride = vgpu::VirtualNode(2, options).rank_stride();
  return stride;
}

Outcome run(const Subject& subject, const codegen::CompiledKernel& kernel, uint64_t seed,
            vgpu::TensorMath math, vgpu::Strictness strictness) {
  vgpu::Options options = options_for(subject, kernel.target, seed);
  options.tensor_math = math;
  options.strictness = strictness;
  if (subject.ranks > 1) return run_on_ranks(options, subject, kernel);
  return run_on(runtime::make_virtual_device(options), subject, kernel);
}

Outcome run_on_cuda(const Subject& subject, const codegen::CompiledKernel& kernel) {
  return run_on(runtime::cuda_device(0), subject, kernel);
}

}  // namespace imbrex::mutants
