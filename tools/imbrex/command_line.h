// SPDX-License-Identifier: Apache-2.0
// Subcommands and their options, by the names that CLI11 has for what they do. CLI11 itself is behind them, in
// command_line.cpp: it takes seconds of each source that includes it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace imbrex::command {

/// What is wrong with a word of the command line, or "". It may change the word.
using WordCheck = std::function<std::string(std::string& word)>;

/// An option, a flag or an argument by position.
class Option {
 public:
  explicit Option(CLI::Option& option) : option_(option) {}

  Option* required(bool is_required = true);
  /// Shows in --help what the variable holds now.
  Option* capture_default_str();
  Option* excludes(const Option* other);
  Option* excludes(const std::string& other);
  Option* delimiter(char between_values);
  Option* expected(int least, int most);
  Option* allow_extra_args(bool one_flag_for_many_values);
  Option* description(const std::string& help);
  /// The heading in --help; "" hides it.
  Option* group(const std::string& heading);

  Option* one_of(const std::vector<std::string>& words);
  Option* between(int least, int most);
  Option* between(double least, double most);
  Option* at_least_zero();
  Option* positive();
  Option* existing_file();
  Option* check(WordCheck check);
  /// A check that changes words before anything else sees them.
  Option* transform(WordCheck change);

 private:
  CLI::Option& option_;
};

/// A subcommand, or the command itself.
class Subcommand {
 public:
  explicit Subcommand(CLI::App& app) : app_(app) {}
  Subcommand(const Subcommand&) = delete;
  Subcommand& operator=(const Subcommand&) = delete;

  Subcommand* add_subcommand(const std::string& name, const std::string& help);
  /// `name`: "--long", "-s,--long", or "WORD" for what is given by position. The types there are: see command_line.cpp.
  template <class T>
  Option* add_option(const std::string& name, T& value, const std::string& help);
  Option* add_option_function(const std::string& name, std::function<void(int64_t)> take,
                              const std::string& help);
  Option* add_flag(const std::string& name, bool& value, const std::string& help);
  /// One that changes nothing: its name for what is so anyway.
  Option* add_flag(const std::string& name);
  /// One of this subcommand that was added before.
  Option* get_option(const std::string& name);

  Subcommand* callback(std::function<void()> run);
  Subcommand* footer(const std::string& text);
  /// The heading in --help; "" hides it.
  Subcommand* group(const std::string& heading);
  Subcommand* require_subcommand(int count);
  /// How many times the option was given.
  size_t count(const std::string& option) const;

 private:
  Option* kept(CLI::Option* option);

  CLI::App& app_;
  std::vector<std::unique_ptr<Option>> options_;
  std::vector<std::unique_ptr<Subcommand>> subcommands_;
};

}  // namespace imbrex::command
