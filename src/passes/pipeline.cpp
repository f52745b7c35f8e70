// SPDX-License-Identifier: Apache-2.0
#include "passes/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "core/text.h"
#include "imbrex/core/error.h"
#include "passes/allocate_memory.h"
#include "passes/checks/check_clusters.h"
#include "passes/checks/check_tensor_memory.h"
#include "passes/checks/check_thread_groups.h"
#include "passes/checks/check_variables.h"
#include "passes/dead_code.h"
#include "passes/fold.h"
#include "passes/insert_fences.h"
#include "passes/layouts/infer_layouts.h"
#include "passes/lift_grid_constants.h"
#include "passes/make_tensor_maps.h"
#include "passes/promote_constant_variables.h"
#include "passes/promote_variables.h"
#include "passes/propagate_constants.h"
#include "passes/unroll.h"

namespace imbrex::passes {
namespace {

void verify(ir::Function& function) { ir::verify(function); }

constexpr Pass kPasses[] = {
    {"promote_constant_variables", promote_constant_variables,
     "variables that are never assigned become values"},
    {"verify", verify, "structure, types, targets and limits"},
    {"check_thread_groups", check_thread_groups, "every op runs in a thread group it can run in"},
    {"check_variables", check_variables, "who reads a variable has been among those who set it"},
    {"check_clusters", check_clusters, "ranks, masks and pairs fit the cluster"},
    {"check_tensor_memory", check_tensor_memory, "tensor memory is freed, once, after its last use"},
    {"promote_variables", promote_variables, "reads of variables become the values assigned to them"},
    {"fold", fold, "compile-time arithmetic, algebra, merging of equal ops"},
    {"unroll", unroll, "loops are copied as their authors asked"},
    {"promote_variables", promote_variables, "again, through the copies"},
    {"propagate_constants", propagate_constants, "ring-buffer indices become numbers"},
    {"fold", fold, "again, with those numbers"},
    {"dead_code", dead_code, "what has no use goes"},
    {"lift_grid_constants", lift_grid_constants, "what the launch determines is computed on the host"},
    {"dead_code", dead_code, "what was lifted goes from the kernel"},
    {"insert_fences", insert_fences, "waits and fences that the memory model requires"},
    {"infer_layouts", infer_layouts, "every tensor gets its layout"},
    {"make_tensor_maps", make_tensor_maps, "what TMA copies is described on the host"},
    {"allocate_memory", allocate_memory, "places in shared memory, columns of tensor memory"},
};

bool is_pass(const std::string& name) {
  return std::any_of(std::begin(kPasses), std::end(kPasses),
                     [&](const Pass& pass) { return pass.name == name; });
}

/// A setting that must name a pass.
void check_name(const char* variable, const std::string& name) {
  if (name.empty() || name == "all" || is_pass(name)) return;
  std::vector<std::string> known;
  for (const Pass& pass : kPasses) known.emplace_back(pass.name);
  const std::string near = nearest_word(name, known);
  throw CompileError(Diagnostic{{},
                                fmt::format("{}: there is no pass '{}'", variable, name),
                                {},
                                near.empty() ? "" : fmt::format("did you mean '{}'?", near)});
}

std::string environment(const char* variable) {
  const char* value = std::getenv(variable);
  return value ? value : "";
}

std::vector<std::string> split_names(const std::string& text) {
  std::vector<std::string> out;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    if (end > begin) out.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

void verify_after(std::string_view pass, const ir::Function& function) {
  try {
    ir::verify(function);
  } catch (const CompileError& error) {
    throw InternalError(
        fmt::format("the IR is invalid after pass {}:\n{}\n{}", pass, error.what(), ir::print(function)));
  }
}

}  // namespace

std::span<const Pass> pipeline() { return kPasses; }

PipelineOptions PipelineOptions::from_environment() {
  PipelineOptions options;
  options.dump_after = environment("IMBREX_DUMP_IR");
  options.stop_after = environment("IMBREX_STOP_AFTER");
  options.skip = split_names(environment("IMBREX_SKIP"));
  options.verify = environment("IMBREX_VERIFY") == "1";
  options.time = environment("IMBREX_TIME_PASSES") == "1";
  check_name("IMBREX_DUMP_IR", options.dump_after);
  check_name("IMBREX_STOP_AFTER", options.stop_after);
  for (const std::string& name : options.skip) check_name("IMBREX_SKIP", name);
  return options;
}

std::vector<PassTime> run_pipeline(ir::Function& function, const PipelineOptions& options) {
  using Clock = std::chrono::steady_clock;
  std::vector<PassTime> times;
  for (const Pass& pass : kPasses) {
    const std::string name(pass.name);
    if (std::find(options.skip.begin(), options.skip.end(), name) != options.skip.end()) continue;
    const Clock::time_point begin = Clock::now();
    pass.run(function);
    times.push_back({pass.name, std::chrono::duration<double, std::milli>(Clock::now() - begin).count()});
    if (options.dump_after == "all" || options.dump_after == name) {
      if (options.dump)
        options.dump(name, function);
      else
        std::fputs(fmt::format("// after {}\n{}\n", name, ir::print(function)).c_str(), stderr);
    }
    if (options.verify) verify_after(name, function);
    if (options.stop_after == name) break;
  }
  if (options.time)
    for (const PassTime& time : times)
      std::fputs(fmt::format("{:>24}  {:.3f} ms\n", time.name, time.milliseconds).c_str(), stderr);
  return times;
}

}  // namespace imbrex::passes
