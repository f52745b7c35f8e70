// SPDX-License-Identifier: Apache-2.0
#include "imbrex/runtime/compile.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/target.h"
#include "core/text.h"
#include "imbrex/core/error.h"
#include "ir/ir.h"
#include "passes/pipeline.h"
#include "ptx/register_pressure.h"
#include "runtime/assemble/assembler.h"
#include "runtime/assemble/kept_plan.h"
#include "runtime/assemble/shipped_code.h"
#include "runtime/compile/compile.h"

namespace imbrex {

std::string print_ir(const ir::Function& function) { return ir::print(function); }

std::vector<std::string> pass_names() {
  std::vector<std::string> names;
  for (const passes::Pass& pass : passes::pipeline())
    if (std::find(names.begin(), names.end(), pass.name) == names.end()) names.emplace_back(pass.name);
  return names;
}

std::string ir_after(ir::Function& function, const std::string& last) {
  if (last == "trace") return ir::print(function);
  const std::vector<std::string> names = pass_names();
  if (!last.empty() && std::find(names.begin(), names.end(), last) == names.end()) {
    std::string near = nearest_word(last, names);
    throw LaunchError(
        Diagnostic{{},
                   fmt::format("no pass is called '{}'", last),
                   {},
                   near.empty() ? "see imbrex emit --help" : fmt::format("did you mean '{}'?", near)});
  }
  passes::PipelineOptions options = passes::PipelineOptions::from_environment();
  options.stop_after = last;
  passes::run_pipeline(function, options);
  return ir::print(function);
}

std::string emit_ptx(ir::Function& function) { return runtime::compile(function).ptx; }

KernelResources kernel_resources(ir::Function& function) {
  codegen::CompiledKernel kernel = runtime::compile(function);
  const ptx::RegisterPressure pressure = ptx::register_pressure(kernel.ptx, kernel.name);
  KernelResources result{.target = kernel.target, .cta = {}, .pressure = {}, .ptx = std::move(kernel.ptx)};
  result.cta = {.threads = kernel.threads,
                .registers_per_thread =
                    std::min(pressure.estimate, find_target(kernel.target)->max_registers_per_thread),
                .shared_bytes = kernel.shared_bytes,
                .tensor_memory_columns = kernel.tensor_memory_columns,
                .cluster_ctas = int64_t{kernel.cluster[0]} * kernel.cluster[1] * kernel.cluster[2]};
  result.pressure = SourceLocation{kernel.where.file, pressure.line};
  ir::walk(function.body, [&](const ir::Op& op) {  // whose names of files last
    if (op.where.file == pressure.file_name) result.pressure.file = op.where.file;
  });
  return result;
}

namespace {

const runtime::Assembler& ptxas_or_throw() {
  std::string why_not;
  const runtime::Assembler* ptxas = runtime::find_ptxas(&why_not);
  if (ptxas == nullptr) throw LaunchError(Diagnostic{{}, why_not, {}, "install the CUDA toolkit's ptxas"});
  return *ptxas;
}

}  // namespace

AssembledResources assembled_resources(ir::Function& function, const std::string& target) {
  const runtime::Assembler& ptxas = ptxas_or_throw();
  const codegen::CompiledKernel kernel = runtime::compile(function);
  const runtime::Cubin cubin =
      runtime::assemble_cached(ptxas, kernel, target.empty() ? kernel.target : target, Cache::shared(),
                               {.spills = true, .serialization = true});
  const runtime::AssemblerLog log = cubin.log();
  return {cubin.assembler, log.registers, log.spill_store_bytes,
          runtime::performance_errors(kernel, log, {})};
}

void runtime::ship(ir::Function& function, const std::string& identity, Cache& folder) {
  const Assembler& ptxas = ptxas_or_throw();
  const codegen::CompiledKernel kernel = compile(function);
  bool has_code = true;
  if (&folder == &Cache::shared())
    assemble_cached(ptxas, kernel, kernel.target, folder, {});
  else
    has_code = ship_code(kernel, assemble_to_ship(ptxas, kernel), folder);
  const bool is_kept = has_code && (identity.empty() || keep_plan(kernel, identity, kernel.target, folder));
  if (!is_kept)
    throw DeviceError(Diagnostic{
        {}, fmt::format("machine code cannot be kept in {}", folder.directory()), {}, "name another folder"});
}

namespace {

/// True of warp groups that set their registers and then only part: what they have inside are the roles.
bool only_sets_registers(const ir::Block& block) {
  int groups = 0;
  bool sets = false;
  for (const ir::Op* op : block.ops) {
    if (op->code == ir::Opcode::kThreadGroup)
      ++groups;
    else if (op->code == ir::Opcode::kSetmaxnreg)
      sets = true;
    else if (op->info().effect != ir::Effect::kPure)
      return false;
  }
  return sets && groups > 1;
}

/// The groups in a block that runs from thread `first` on.
void find_thread_groups(const ir::Block& block, int64_t first, std::vector<ThreadGroup>& found) {
  for (const ir::Op* op : block.ops) {
    int64_t begin = first;
    if (op->code == ir::Opcode::kThreadGroup) {
      begin += op->int_attr("begin");
      if (!only_sets_registers(*op->regions.front())) {
        found.push_back({begin, op->int_attr("threads"), op->where});
        continue;
      }
    }
    for (const std::unique_ptr<ir::Block>& region : op->regions) find_thread_groups(*region, begin, found);
  }
}

}  // namespace

std::vector<ThreadGroup> thread_groups(const ir::Function& function) {
  std::vector<ThreadGroup> found;
  find_thread_groups(function.body, 0, found);
  return found;
}

}  // namespace imbrex
