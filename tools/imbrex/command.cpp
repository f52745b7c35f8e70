// SPDX-License-Identifier: Apache-2.0
#include "imbrex/command.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <new>
#include <set>
#include <stdexcept>

#include "imbrex/core/error.h"
#include "imbrex/core/nearest.h"
#include "imbrex/core/version.h"
#include "subcommands.h"

namespace imbrex {
namespace {

/// CLI11 names an unknown word; we add the nearest known one.
std::string suggestion(const CLI::App& app, int argc, char** argv) {
  std::vector<std::string> words;
  for (const CLI::App* sub : app.get_subcommands({}))
    if (!sub->get_group().empty()) words.push_back(sub->get_name());
  if (argc < 2) return "";
  const CLI::App* chosen = nullptr;
  for (const CLI::App* sub : app.get_subcommands({}))
    if (sub->get_name() == argv[1]) chosen = sub;
  if (chosen == nullptr) return nearest_word(argv[1], words);
  words.clear();
  for (const CLI::App* sub : chosen->get_subcommands({})) words.push_back(sub->get_name());
  if (!words.empty() && argc > 2 && argv[2][0] != '-' &&
      std::find(words.begin(), words.end(), argv[2]) == words.end())
    return nearest_word(argv[2], words);
  words.clear();
  for (const CLI::Option* option : chosen->get_options()) words.push_back("--" + option->get_single_name());
  for (int i = 2; i < argc; ++i) {
    std::string word = argv[i];
    word = word.substr(0, word.find('='));
    if (word.starts_with("--") && std::find(words.begin(), words.end(), word) == words.end())
      return nearest_word(word, words);
  }
  return "";
}

}  // namespace

int command_main(int argc, char** argv) {
  CLI::App app{"Imbrex: write, run and inspect tile-level GPU kernels"};
  app.name("imbrex");
  app.require_subcommand(1);
  app.set_version_flag("--version", version());
  app.footer(
      "Exit code: 0 verified; 1 a kernel failed or is wrong; 2 the command line or the kernel cannot be "
      "used.");
  command::Action chosen;
  command::add_list(app, chosen);
  command::add_run(app, chosen);
  command::add_trace(app, chosen);
  command::add_emit(app, chosen);
  command::add_exec(app, chosen);
  command::add_demo(app, chosen);
  command::add_tune(app, chosen);
  command::add_bench(app, chosen);
  command::add_profile(app, chosen);
  command::add_build(app, chosen);
  command::add_worker(app, chosen);
  command::add_cache(app, chosen);
  command::add_tile(app, chosen);
  command::add_roofline(app, chosen);
  command::add_explain(app, chosen);
  command::add_explore(app, chosen);
  command::add_layout(app, chosen);
  command::add_banks(app, chosen);
  try {
    app.parse(argc, argv);
    return chosen();
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    if (argc < 2) {
      fmt::print(stderr, "{}", app.help());
      return 2;
    }
    std::string near = suggestion(app, argc, argv);
    const bool is_known =
        argv[1][0] == '-' || std::ranges::any_of(app.get_subcommands({}), [&](const CLI::App* sub) {
          return sub->get_name() == argv[1];
        });
    fmt::print(stderr, "imbrex: {}\n",
               is_known ? error.what() : fmt::format("there is no command '{}'", argv[1]));
    if (!near.empty()) fmt::print(stderr, "  did you mean '{}'?\n", near);
    fmt::print(stderr, "  see: imbrex --help\n");
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
    fmt::print(stderr, "error: this machine has not enough memory for that\n  help: choose smaller sizes\n");
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
