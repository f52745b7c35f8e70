// SPDX-License-Identifier: Apache-2.0
// --gpu, shared by the subcommands that calculate for a GPU: a known one by name, or one described in a JSON
// file.
#pragma once

#include <string>

#include "command_line.h"
#include "imbrex/inspect/gpu_model.h"
#include "imbrex/runtime/registry.h"

namespace imbrex::command {

class GpuChoice {
 public:
  void add_to(Subcommand& command);
  /// --sms, of those who predict times: that many multiprocessors with their share of the bandwidths; 0: the chip's.
  static void add_sms_to(Subcommand& command, int& sms);
  /// The GPU; LaunchError when it is unknown or its file does not describe one. Call after parsing.
  /// `otherwise` names the one to take when none was given.
  GpuModel gpu(const std::string& otherwise) const;
  bool is_given() const { return !name_.empty(); }
  /// The GPU to look at a kernel on: the one given, LaunchError when it does not run the kernel's code; else the
  /// one that stands for its target.
  GpuModel gpu_for(const RegisteredKernel& kernel) const;

 private:
  std::string name_;
};

/// Element types by name; LaunchError with the nearest name.
DataType dtype_named(const std::string& name);

}  // namespace imbrex::command
