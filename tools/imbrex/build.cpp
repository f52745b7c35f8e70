// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "imbrex/core/error.h"
#include "imbrex/runtime/package.h"
#include "imbrex/runtime/tuner.h"
#include "subcommands.h"
#include "svg.h"

namespace imbrex::command {

void add_build(Subcommand& app, Action& chosen) {
  struct Options {
    KernelChoice choice;
    std::vector<std::string> targets;
    std::string folder = ".";
  };
  auto options = std::make_shared<Options>();
  Subcommand* command =
      app.add_subcommand("build", "Build a kernel that C and C++ programs ship without Imbrex");
  options->choice.add_to(*command);
  command->add_option("--arch", options->targets, "targets, separated by commas: sm_80, sm_90a, sm_100a, ...")
      ->delimiter(',');
  command->add_option("-o,--output", options->folder, "folder for the files, made if it is missing")
      ->capture_default_str();
  command->footer(
      "Writes NAME.h and NAME.c, a loader in one file that needs nothing but a CUDA driver at run time, and "
      "for each\n"
      "target the PTX and, by ptxas, the cubin. Without ptxas the loader holds the PTX, and the driver "
      "assembles it.\n"
      "Without --config the configuration tuned for these sizes is taken.");
  command->callback([&chosen, options] {
    chosen = [options] {
      const RegisteredKernel& kernel = options->choice.kernel();
      if (options->targets.empty()) options->targets.push_back(kernel.target);
      const std::map<std::string, int64_t> sizes = options->choice.sizes();
      Configuration configuration = options->choice.configuration();
      std::string origin;
      if (!options->choice.has_configuration())
        if (const auto tuned = find_tuned(kernel, sizes, Device::open("auto", kernel.target))) {
          configuration = tuned->configuration;
          origin = " (tuned)";
        }
      std::error_code error;
      std::filesystem::create_directories(options->folder, error);
      if (error)
        throw LaunchError(Diagnostic{{}, fmt::format("{}: {}", options->folder, error.message()), {}, ""});
      const Package package = make_package(kernel, sizes, configuration, options->targets);
      for (const PackageFile& file : package.files) {
        const std::string path = options->folder + "/" + file.name;
        write_file(path, file.content);
        fmt::print("{}  {} bytes\n", path, file.content.size());
      }
      if (!configuration.empty())
        fmt::print("configuration {}{}\n", kernel.space.to_string(configuration), origin);
      if (!package.note.empty()) fmt::print("note: {}\n", package.note);
      return 0;
    };
  });
}

}  // namespace imbrex::command
