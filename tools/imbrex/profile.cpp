// SPDX-License-Identifier: Apache-2.0
// `imbrex profile`: `imbrex run` under NVIDIA's profiler.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "imbrex/core/error.h"
#include "imbrex/core/find_tool.h"
#include "itself.h"
#include "subcommands.h"

namespace imbrex::command {
namespace {

[[noreturn]] void fail(const std::string& message, const std::string& help) {
  throw DeviceError(Diagnostic{{}, message, {}, help});
}

int run(const KernelChoice& choice, const std::string& output, const std::string& set,
        const std::vector<std::string>& run_arguments) {
  std::string why_not;
  if (!Device::has_cuda(&why_not))
    fail("there is nothing to profile on: " + why_not,
         "the virtual GPU counts what a launch does: imbrex run KERNEL --device virtual --stats");
  const CudaTool found = find_cuda_tool("ncu");
  if (found.path.empty())
    fail("no ncu (Nsight Compute): " + found.why_not, "install it, or name its file in IMBREX_NCU");
  const std::string& ncu = found.path;
  std::vector<std::string> words = {ncu,       "--set", set, "--import-source", "yes", "--kernel-name-base",
                                    "function"};
  if (!output.empty()) words.insert(words.end(), {"-o", output, "-f"});
  words.insert(words.end(), itself().begin(), itself().end());
  words.insert(words.end(), {"run", choice.kernel().description.name, "--device", "cuda"});
  for (const auto& [name, value] : choice.sizes()) words.push_back(fmt::format("--{}={}", name, value));
  words.insert(words.end(), run_arguments.begin(), run_arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::fflush(nullptr);
  execv(argv[0], argv.data());
  fail(fmt::format("{}: {}", ncu, std::strerror(errno)), "");
}

}  // namespace

void add_profile(Subcommand& app, Action& chosen) {
  struct Options {
    KernelChoice choice;
    std::string output, set = "detailed";
  };
  auto options = std::make_shared<Options>();
  Subcommand* command = app.add_subcommand("profile", "Run a kernel under ncu, NVIDIA's profiler");
  options->choice.add_to(*command);
  command->add_option("-o,--output", options->output,
                      "write ncu's report to this file instead of printing it");
  command->add_option("--set", options->set, "ncu's set of sections: basic, detailed, full")
      ->one_of({"basic", "detailed", "full"})
      ->capture_default_str();
  command->footer(
      "The report points at the kernel's C++ lines. ncu locks the clock: compare its ratios, not its times.");
  command->callback([&chosen, options] {
    chosen = [options] {
      std::vector<std::string> more;
      if (options->choice.has_configuration()) more = {"--config", options->choice.configuration_text()};
      return run(options->choice, options->output, options->set, more);
    };
  });
}

}  // namespace imbrex::command
