// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <fstream>

#include "imbrex/core/error.h"
#include "imbrex/runtime/compile.h"
#include "subcommands.h"

namespace imbrex::command {

void add_emit(Subcommand& app, Action& chosen) {
  struct Options {
    KernelChoice choice;
    std::string stage = "ptx", pass, output;
  };
  auto options = std::make_shared<Options>();
  Subcommand* command = app.add_subcommand("emit", "Print a kernel's IR or PTX");
  options->choice.add_to(*command);
  command->add_option("--stage", options->stage, "what to print")
      ->one_of({"ir", "ptx"})
      ->capture_default_str();
  command->add_option("--pass", options->pass,
                      fmt::format("with --stage ir: print after this pass: trace (before any), {}",
                                  fmt::join(pass_names(), ", ")));
  command->add_option("-o,--output", options->output, "write to this file instead");
  command->callback([&chosen, options] {
    chosen = [options] {
      const RegisteredKernel& kernel = options->choice.kernel();
      if (options->stage == "ptx" && !options->pass.empty())
        throw LaunchError(Diagnostic{{}, "--pass goes with --stage ir", {}, ""});
      Case traced(Case::Mode::kTrace, std::nullopt, options->choice.sizes(), 0);
      kernel.run(traced, std::nullopt, options->choice.configuration());
      std::string text =
          options->stage == "ptx" ? emit_ptx(*traced.function) : ir_after(*traced.function, options->pass);
      if (options->output.empty()) {
        fmt::print("{}", text);
        return 0;
      }
      std::ofstream file(options->output);
      file << text;
      file.close();
      if (!file) throw LaunchError(Diagnostic{{}, "cannot write " + options->output, {}, ""});
      return 0;
    };
  });
}

}  // namespace imbrex::command
