// SPDX-License-Identifier: Apache-2.0
// The subcommands: each adds itself to the command line and, when chosen, stores what to do in `chosen`.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "imbrex/registry.h"

namespace imbrex::command {

using Action = std::function<int()>;

void add_cache(CLI::App& app, Action& chosen);
void add_list(CLI::App& app, Action& chosen);
void add_run(CLI::App& app, Action& chosen);
void add_emit(CLI::App& app, Action& chosen);
void add_exec(CLI::App& app, Action& chosen);
void add_demo(CLI::App& app, Action& chosen);

/// KERNEL, its sizes as --NAME, and --config, shared by the subcommands that take a kernel.
class KernelChoice {
 public:
  void add_to(CLI::App& command);

  /// The kernel; LaunchError with the nearest name when unknown. Call after parsing.
  const RegisteredKernel& kernel() const;
  /// Sizes given on the command line over the kernel's defaults; LaunchError for a size the kernel does not
  /// have.
  std::map<std::string, int64_t> sizes() const;
  /// The configuration of --config over the default; LaunchError for an unknown name.
  Configuration configuration() const;

 private:
  std::string name_;
  std::string config_;
  std::map<std::string, int64_t> given_;
};

}  // namespace imbrex::command
