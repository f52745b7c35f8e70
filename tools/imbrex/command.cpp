// SPDX-License-Identifier: Apache-2.0
#include "imbrex/command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <new>
#include <span>
#include <stdexcept>

#include "imbrex/core/error.h"
#include "imbrex/core/nearest.h"
#include "imbrex/core/version.h"
#include "imbrex/inspect/gpu_model.h"
#include "itself.h"
#include "subcommands.h"

namespace imbrex {
namespace {

/// What is wrong with a command line that CLI11 refuses, the nearest word that would do, and whose help to read.
struct Complaint {
  std::string message, near, command;
};

std::vector<std::string> subcommand_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* sub : app.get_subcommands({}))
    if (!sub->get_group().empty()) names.push_back(sub->get_name());
  return names;
}

/// Walks the words down the subcommands to the first that is unknown; `message` is CLI11's, for all else.
Complaint complaint(const CLI::App& app, std::span<char* const> words, const std::string& message) {
  std::string path = "imbrex";
  const CLI::App* command = &app;
  size_t next = 0;
  for (; next < words.size(); ++next) {
    const std::vector<std::string> names = subcommand_names(*command);
    const std::string word = words[next];
    if (names.empty() || word.starts_with('-')) break;
    const std::vector<const CLI::App*> subcommands = command->get_subcommands({});
    const auto found =
        std::ranges::find_if(subcommands, [&](const CLI::App* sub) { return sub->get_name() == word; });
    if (found == subcommands.end())
      return {fmt::format("there is no command '{} {}'", path, word), nearest_word(word, names), path};
    command = *found;
    path += " " + word;
  }
  std::vector<std::string> options;
  for (const CLI::Option* option : command->get_options())
    for (const std::string& name : option->get_lnames()) options.push_back("--" + name);
  for (; next < words.size(); ++next) {
    const std::string word = words[next], name = word.substr(0, word.find('='));
    if (name.starts_with("--") && name.size() > 2 && std::ranges::find(options, name) == options.end())
      return {fmt::format("'{}' has no option {}", path, name), nearest_word(name, options), path};
  }
  return {message, "", path};
}

/// Those that are closed: the next file would take their numbers, and printing would fail.
void open_standard_streams() {
  for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; ++stream)
    if (fcntl(stream, F_GETFD) < 0) open("/dev/null", O_RDWR);
}

}  // namespace

int command_main(int argc, char** argv, const std::vector<std::string>& itself) {
  open_standard_streams();
  command::set_itself(itself);
  // `imbrex run` with a -- is of a program, and what stands behind is that program's; so are `imbrex check` and `launch`.
  std::vector<char*> words(argv, argv + argc);
  std::vector<std::string> program;
  if (const auto dashes = std::ranges::find(words, std::string_view("--"));
      argc > 1 && dashes != words.end() &&
      (std::string_view(argv[1]) == "run" || std::string_view(argv[1]) == "check" ||
       std::string_view(argv[1]) == "launch")) {
    program.assign(dashes + 1, words.end());
    words.erase(dashes, words.end());
    if (std::string_view(argv[1]) == "run") words[1] = const_cast<char*>(command::kRunProgram);
    argc = static_cast<int>(words.size());
    argv = words.data();
  }
  try {
    (void)gpu_models();  // whose names the options list; IMBREX_GPU_MODEL may name a file that is none
  } catch (const LaunchError& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  }
  CLI::App app{"Imbrex: write, run and inspect tile-level GPU kernels"};
  app.name("imbrex");
  app.require_subcommand(1);
  app.set_version_flag("--version", version());
  app.footer(
      "Exit code: 0 verified; 1 a kernel failed or is wrong; 2 the command line or the kernel cannot be "
      "used.");
  command::Subcommand root(app);
  command::Action chosen;
  command::add_list(root, chosen);
  command::add_run(root, chosen);
  command::add_run_program(root, chosen, program);
  command::add_launch(root, chosen, program);
  command::add_trace(root, chosen);
  command::add_why(root, chosen);
  command::add_predict(root, chosen);
  command::add_emit(root, chosen);
  command::add_exec(root, chosen);
  command::add_demo(root, chosen);
  command::add_tune(root, chosen);
  command::add_bench(root, chosen);
  command::add_profile(root, chosen);
  command::add_build(root, chosen);
  command::add_worker(root, chosen);
  command::add_cache(root, chosen);
  command::add_calibrate(root, chosen);
  command::add_tile(root, chosen);
  command::add_roofline(root, chosen);
  command::add_explain(root, chosen);
  command::add_explore(root, chosen);
  command::add_layout(root, chosen);
  command::add_banks(root, chosen);
  command::add_coalescing(root, chosen);
  try {
    app.parse(argc, argv);
    return chosen();
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    if (argc < 2) {
      fmt::print(stderr, "{}", app.help());
      return 2;
    }
    const auto [message, near, command] = complaint(app, {argv + 1, argv + argc}, error.what());
    fmt::print(stderr, "imbrex: {}\n", message);
    if (!near.empty()) fmt::print(stderr, "  did you mean '{}'?\n", near);
    fmt::print(stderr, "  see: {} --help\n", command);
    return 2;
  } catch (const DeviceError& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  } catch (const InternalError& error) {
    fmt::print(stderr, "{}\nThis is a bug in Imbrex. Please report it with the command line.\n",
               error.what());
    return 2;
  } catch (const std::bad_alloc&) {
    fmt::print(stderr,
               "error: this machine does not have enough memory for that\n  help: choose smaller sizes\n");
    return 2;
  } catch (const std::length_error&) {
    fmt::print(stderr, "error: no machine has enough memory for that\n  help: choose smaller sizes\n");
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\nThis is a bug in Imbrex. Please report it with the command line.\n",
               error.what());
    return 2;
  }
}

}  // namespace imbrex
