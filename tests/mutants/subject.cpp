// SPDX-License-Identifier: Apache-2.0
#include "mutants/subject.h"

#include <fmt/format.h>

#include <cstring>

#include "codegen/codegen.h"
#include "imbrex/core/error.h"
#include "ir/ir.h"
#include "passes/pipeline.h"
#include "ptx/reader.h"
#include "runtime/device/backend.h"
#include "runtime/launch/host_program.h"

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

Outcome run_on(const std::shared_ptr<runtime::DeviceBackend>& device, const Subject& subject,
               const codegen::CompiledKernel& kernel) {
  std::vector<uint64_t> addresses;
  for (size_t i = 0; i < subject.tensors.size(); ++i) {
    const TensorArgument& tensor = subject.tensors[i];
    HostTensor host(tensor.dtype, tensor.shape);
    if (!tensor.values.empty())
      for (size_t k = 0; k < tensor.values.size(); ++k)
        host.set(static_cast<int64_t>(k), static_cast<double>(tensor.values[k]));
    else if (!tensor.is_output && !tensor.is_zeroed)
      host = HostTensor::random(tensor.dtype, tensor.shape, i + 1);
    const auto bytes = static_cast<int64_t>(host.bytes().size());
    addresses.push_back(device->allocate(bytes));
    if (tensor.is_output)
      device->fill(addresses.back(), 0xFF, bytes);
    else
      device->copy_to_device(addresses.back(), host.bytes().data(), bytes);
  }

  Outcome outcome;
  try {
    std::vector<int64_t> arguments, slots(kernel.host.size());
    for (const Subject::Value& value : subject.arguments)
      arguments.push_back(value.tensor < 0 ? value.number : static_cast<int64_t>(addresses[value.tensor]));
    runtime::evaluate_host(kernel, arguments, slots);
    std::vector<std::byte> params(kernel.param_bytes);
    runtime::pack_params(kernel, arguments, slots, *device, params.data());
    runtime::LaunchPlan plan;
    for (int i = 0; i < 3; ++i)
      if (kernel.grid_slots[i] >= 0) plan.grid[i] = slots[kernel.grid_slots[i]];
    plan.params = params;
    plan.stream = device->stream();
    const std::shared_ptr<runtime::LoadedKernel> loaded = device->load(kernel);
    vgpu::Report report = device->launch(*loaded, plan).virtual_report;
    outcome.findings = std::move(report.findings);
    outcome.notes = std::move(report.notes);
    device->synchronize();
    for (size_t i = 0; i < subject.tensors.size(); ++i) {
      const TensorArgument& tensor = subject.tensors[i];
      if (!tensor.is_compared) continue;
      HostTensor host(tensor.dtype, tensor.shape);
      device->copy_from_device(host.bytes().data(), addresses[i], static_cast<int64_t>(host.bytes().size()));
      outcome.results.insert(outcome.results.end(), host.bytes().begin(), host.bytes().end());
    }
  } catch (const Error& error) {
    outcome.refused = error.what();
  }
  return outcome;
}

}  // namespace

Outcome run(const Subject& subject, const codegen::CompiledKernel& kernel, uint64_t seed,
            vgpu::TensorMath math, vgpu::Strictness strictness) {
  vgpu::Options options;
  options.target = kernel.target;
  options.num_sms = subject.num_sms;
  options.host_threads = 1;
  options.seed = seed;
  options.checks = vgpu::CheckSet::all();
  options.tensor_math = math;
  options.strictness = strictness;
  options.instruction_budget = kInstructions;
  options.stall_budget = kStall;
  options.memory_bytes = kDeviceMemory;
  options.max_findings = kFindings;
  return run_on(runtime::make_virtual_device(options), subject, kernel);
}

Outcome run_on_cuda(const Subject& subject, const codegen::CompiledKernel& kernel) {
  return run_on(runtime::cuda_device(0), subject, kernel);
}

}  // namespace imbrex::mutants
