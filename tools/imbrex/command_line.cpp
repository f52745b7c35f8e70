// SPDX-License-Identifier: Apache-2.0
#include "command_line.h"

#include <CLI/CLI.hpp>
#include <cstdint>
#include <utility>

namespace imbrex::command {

Option* Option::required(bool is_required) { return option_.required(is_required), this; }
Option* Option::capture_default_str() { return option_.capture_default_str(), this; }
Option* Option::excludes(const Option* other) { return option_.excludes(&other->option_), this; }
Option* Option::excludes(const std::string& other) { return option_.excludes(other), this; }
Option* Option::delimiter(char between_values) { return option_.delimiter(between_values), this; }
Option* Option::expected(int least, int most) { return option_.expected(least, most), this; }
Option* Option::allow_extra_args(bool one_flag_for_many_values) {
  return option_.allow_extra_args(one_flag_for_many_values), this;
}
Option* Option::description(const std::string& help) { return option_.description(help), this; }
Option* Option::group(const std::string& heading) { return option_.group(heading), this; }

Option* Option::one_of(const std::vector<std::string>& words) {
  return option_.check(CLI::IsMember(words)), this;
}
Option* Option::between(int least, int most) { return option_.check(CLI::Range(least, most)), this; }
Option* Option::between(double least, double most) { return option_.check(CLI::Range(least, most)), this; }
Option* Option::at_least_zero() { return option_.check(CLI::NonNegativeNumber), this; }
Option* Option::positive() { return option_.check(CLI::PositiveNumber), this; }
Option* Option::existing_file() { return option_.check(CLI::ExistingFile), this; }
Option* Option::check(WordCheck check) { return option_.check(CLI::Validator(std::move(check), "")), this; }
Option* Option::transform(WordCheck change) {
  return option_.transform(CLI::Validator(std::move(change), "")), this;
}

Option* Subcommand::kept(CLI::Option* option) {
  return options_.emplace_back(std::make_unique<Option>(*option)).get();
}

Subcommand* Subcommand::add_subcommand(const std::string& name, const std::string& help) {
  return subcommands_.emplace_back(std::make_unique<Subcommand>(*app_.add_subcommand(name, help))).get();
}

template <class T>
Option* Subcommand::add_option(const std::string& name, T& value, const std::string& help) {
  return kept(app_.add_option(name, value, help));
}
#define IMBREX_OPTIONS_OF(...) \
  template Option* Subcommand::add_option(const std::string&, __VA_ARGS__&, const std::string&);
IMBREX_OPTIONS_OF(int)
IMBREX_OPTIONS_OF(int64_t)
IMBREX_OPTIONS_OF(uint64_t)
IMBREX_OPTIONS_OF(double)
IMBREX_OPTIONS_OF(std::string)
IMBREX_OPTIONS_OF(std::vector<int64_t>)
IMBREX_OPTIONS_OF(std::vector<std::string>)
#undef IMBREX_OPTIONS_OF

Option* Subcommand::add_option_function(const std::string& name, std::function<void(int64_t)> take,
                                        const std::string& help) {
  return kept(app_.add_option_function<int64_t>(
      name, [take = std::move(take)](const int64_t& value) { take(value); }, help));
}
Option* Subcommand::add_flag(const std::string& name, bool& value, const std::string& help) {
  return kept(app_.add_flag(name, value, help));
}
Option* Subcommand::add_flag(const std::string& name) { return kept(app_.add_flag(name)); }
Option* Subcommand::get_option(const std::string& name) { return kept(app_.get_option(name)); }

Subcommand* Subcommand::callback(std::function<void()> run) { return app_.callback(std::move(run)), this; }
Subcommand* Subcommand::footer(const std::string& text) { return app_.footer(text), this; }
Subcommand* Subcommand::group(const std::string& heading) { return app_.group(heading), this; }
Subcommand* Subcommand::require_subcommand(int count) { return app_.require_subcommand(count), this; }
size_t Subcommand::count(const std::string& option) const { return app_.count(option); }

}  // namespace imbrex::command
