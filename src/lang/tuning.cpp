// SPDX-License-Identifier: Apache-2.0
#include "imbrex/lang/tuning_space.h"

#include <fmt/format.h>

#include <charconv>

#include "core/text.h"
#include "imbrex/core/error.h"

namespace imbrex {

namespace {

[[noreturn]] void fail(std::string message, std::string help = "") {
  throw CompileError(Diagnostic{{}, "tuning space: " + message, {}, std::move(help)});
}

std::string value_text(const detail::Member& member, int64_t bits) {
  if (member.dtype == any_type) return std::string(DataType{static_cast<DataType::Code>(bits)}.name());
  if (member.dtype.is_float()) return fmt::format("{}", std::bit_cast<double>(bits));
  return std::to_string(bits);
}

int64_t value_from_text(const detail::Member& member, std::string_view text) {
  if (member.dtype == any_type) {
    if (auto type = DataType::from_name(text)) return type->code;
  } else if (member.dtype.is_float()) {
    double value;
    auto [end, error] = std::from_chars(text.begin(), text.end(), value);
    if (error == std::errc() && end == text.end()) return std::bit_cast<int64_t>(value);
  } else {
    int64_t value;
    auto [end, error] = std::from_chars(text.begin(), text.end(), value);
    if (error == std::errc() && end == text.end()) return value;
  }
  fail(fmt::format("'{}' is not a value for {}", text, member.name));
}

}  // namespace

void TuningSpace::add(std::vector<detail::Member> members, std::vector<std::vector<int64_t>> rows) {
  if (rows.empty()) fail(fmt::format("nothing to choose from for {}", members[0].name));
  for (const detail::Member& member : members)
    for (const Choice& choice : choices_)
      for (const detail::Member& known : choice.members)
        if (known.name == member.name) fail(fmt::format("{} is chosen twice", member.name));
  choices_.push_back({std::move(members), std::move(rows)});
}

size_t TuningSpace::size() const {
  size_t n = 1;
  for (const Choice& choice : choices_) n *= choice.rows.size();
  return n;
}

Configuration TuningSpace::configuration(size_t i) const {
  if (i >= size()) fail(fmt::format("configuration {} of {}", i, size()));
  Configuration configuration;
  size_t stride = size();
  for (const Choice& choice : choices_) {
    stride /= choice.rows.size();
    const std::vector<int64_t>& row = choice.rows[i / stride % choice.rows.size()];
    for (size_t m = 0; m < row.size(); ++m)
      configuration.push_back({std::string(choice.members[m].name), row[m]});
  }
  return configuration;
}

std::vector<Configuration> TuningSpace::configurations() const {
  std::vector<Configuration> all;
  for (size_t i = 0; i < size(); ++i) all.push_back(configuration(i));
  return all;
}

const detail::Member& TuningSpace::find(std::string_view name) const {
  std::vector<std::string> names;
  for (const Choice& choice : choices_)
    for (const detail::Member& member : choice.members) {
      if (member.name == name) return member;
      names.emplace_back(member.name);
    }
  const std::string nearest = nearest_word(name, names);
  fail(fmt::format("no member '{}'", name), nearest.empty() ? fmt::format("it has {}", fmt::join(names, ", "))
                                                            : fmt::format("did you mean '{}'?", nearest));
}

void TuningSpace::apply(void* kernel, const Configuration& configuration) const {
  for (const Setting& setting : configuration) find(setting.name).set(kernel, setting.bits);
}

Configuration TuningSpace::read(const void* kernel) const {
  Configuration configuration;
  for (const Choice& choice : choices_)
    for (const detail::Member& member : choice.members)
      configuration.push_back({std::string(member.name), member.get(kernel)});
  return configuration;
}

std::string TuningSpace::to_string(const Configuration& configuration) const {
  std::string text;
  for (const Setting& setting : configuration)
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", setting.name,
                        value_text(find(setting.name), setting.bits));
  return text;
}

Configuration TuningSpace::parse(std::string_view text) const {
  Configuration configuration;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    if (word.empty()) continue;
    const size_t equal = word.find('=');
    if (equal == std::string_view::npos) fail(fmt::format("'{}' is not name=value", word));
    const detail::Member& member = find(word.substr(0, equal));
    configuration.push_back({std::string(member.name), value_from_text(member, word.substr(equal + 1))});
  }
  return configuration;
}

}  // namespace imbrex
