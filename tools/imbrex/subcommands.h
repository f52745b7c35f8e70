// SPDX-License-Identifier: Apache-2.0
// The subcommands: each adds itself to the command line and, when chosen, stores what to do in `chosen`.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "command_line.h"
#include "imbrex/runtime/registry.h"

namespace imbrex::command {

using Action = std::function<int()>;

void add_bench(Subcommand& app, Action& chosen);
void add_build(Subcommand& app, Action& chosen);
void add_predict(Subcommand& app, Action& chosen);
void add_profile(Subcommand& app, Action& chosen);
void add_tune(Subcommand& app, Action& chosen);
void add_worker(Subcommand& app, Action& chosen);
void add_calibrate(Subcommand& app, Action& chosen);
void add_cache(Subcommand& app, Action& chosen);
void add_list(Subcommand& app, Action& chosen);
void add_run(Subcommand& app, Action& chosen);
/// `imbrex run -- PROGRAM`: a subcommand of this name, which does not clash with a kernel's.
inline constexpr const char* kRunProgram = "run-program";
void add_run_program(Subcommand& app, Action& chosen, const std::vector<std::string>& program);
void add_launch(Subcommand& app, Action& chosen, const std::vector<std::string>& program);
void add_emit(Subcommand& app, Action& chosen);
void add_exec(Subcommand& app, Action& chosen);
void add_demo(Subcommand& app, Action& chosen);
void add_tile(Subcommand& app, Action& chosen);
void add_roofline(Subcommand& app, Action& chosen);
void add_explain(Subcommand& app, Action& chosen);
void add_explore(Subcommand& app, Action& chosen);
void add_layout(Subcommand& app, Action& chosen);
void add_banks(Subcommand& app, Action& chosen);
void add_coalescing(Subcommand& app, Action& chosen);
void add_trace(Subcommand& app, Action& chosen);
void add_why(Subcommand& app, Action& chosen);

/// LaunchError when one of `options` was given, because it `belongs` elsewhere: "goes with --svg". To be
/// called while the command line is alive, as actions are.
void refuse_given(const Subcommand& command, std::initializer_list<const char*> options,
                  const std::string& belongs);
/// For options: numbers up to `most`; what is too small is for others to say.
WordCheck at_most(int64_t most);

/// KERNEL, its sizes as --NAME, and --config, shared by the subcommands that take a kernel.
class KernelChoice {
 public:
  enum class Need { kRequired, kOptional };
  void add_to(Subcommand& command, Need need = Need::kRequired);

  /// Whether a kernel was named, where that is optional.
  bool is_given() const { return !name_.empty(); }
  /// The kernel; LaunchError with the nearest name when unknown. Call after parsing.
  const RegisteredKernel& kernel() const;
  /// Sizes given on the command line over the kernel's defaults; LaunchError for a size the kernel does not
  /// have.
  std::map<std::string, int64_t> sizes() const;
  /// The same for a description that the command found otherwise.
  std::map<std::string, int64_t> sizes_of(const KernelDescription& kernel) const;
  const std::string& name() const { return name_; }
  /// A size given on the command line, whether or not the kernel has it, or `otherwise`.
  int64_t given(const std::string& size, int64_t otherwise) const;
  /// The configuration of --config over `otherwise`, the default unless given; LaunchError for an unknown
  /// name.
  Configuration configuration(const std::optional<Configuration>& otherwise = std::nullopt) const;
  /// LaunchError for what only a kernel has where none was named: --config, and sizes but for `understood`.
  void expect_nothing_given(std::initializer_list<std::string_view> understood = {}) const;
  bool has_configuration() const { return !config_.empty(); }
  const std::string& configuration_text() const { return config_; }

 private:
  std::string name_;
  std::string config_;
  std::map<std::string, int64_t> given_;
};

}  // namespace imbrex::command
