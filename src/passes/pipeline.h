// SPDX-License-Identifier: Apache-2.0
// The passes, in order, and the runner that times, verifies, dumps and skips them.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/ir.h"

namespace imbrex::passes {

struct Pass {
  std::string_view name;
  void (*run)(ir::Function& function);
  std::string_view what;  // one line
};

/// Every pass, in the order they run. A pass may stand there more than once.
std::span<const Pass> pipeline();

/// What the runner does besides running. Environment variables set the same from outside:
///
///   IMBREX_DUMP_IR=NAME     IR to standard error after each pass of this name; `all`: after any
///   IMBREX_STOP_AFTER=NAME  stops after the first pass of this name
///   IMBREX_SKIP=NAME,...    skips the passes of these names
///   IMBREX_VERIFY=1         verifies after each pass
///   IMBREX_TIME_PASSES=1    prints what each pass took to standard error
struct PipelineOptions {
  std::string dump_after;
  std::string stop_after;
  std::vector<std::string> skip;
  bool verify = false;
  bool time = false;
  /// Gets the dumps; by default they go to standard error.
  std::function<void(std::string_view pass, const ir::Function& function)> dump;

  /// The defaults with the environment's settings. An unknown pass name is a CompileError.
  static PipelineOptions from_environment();
};

struct PassTime {
  std::string_view name;
  double milliseconds = 0;
};

/// Runs the pipeline. What is wrong with the kernel is a CompileError; IR that a pass has made invalid is an
/// InternalError naming the pass, with the IR. Returns what each pass took.
std::vector<PassTime> run_pipeline(ir::Function& function,
                                   const PipelineOptions& options = PipelineOptions::from_environment());

}  // namespace imbrex::passes
