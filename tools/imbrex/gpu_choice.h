// SPDX-License-Identifier: Apache-2.0
// --gpu, shared by the subcommands that calculate for a GPU: a known one by name, or one described in a JSON
// file.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "imbrex/inspect/gpu_model.h"

namespace imbrex::command {

class GpuChoice {
 public:
  void add_to(CLI::App& command);
  /// The GPU; LaunchError when it is unknown or its file does not describe one. Call after parsing.
  /// `otherwise` names the one to take when none was given.
  GpuModel gpu(const std::string& otherwise) const;
  bool is_given() const { return !name_.empty(); }
  /// The GPU that was given; LaunchError too when it does not run what is built for `target`.
  GpuModel gpu_for(const std::string& target) const;

 private:
  std::string name_;
};

/// Element types by name; LaunchError with the nearest name.
DataType dtype_named(const std::string& name);

}  // namespace imbrex::command
