// SPDX-License-Identifier: Apache-2.0
// Collects scalar forms; used by the files that list them.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "scalar_forms.h"

namespace imbrex::conformance {

using Strings = std::vector<std::string>;

class List {
 public:
  std::vector<Form> forms;

  void family(std::string name) { family_ = std::move(name); }
  void add(std::string text, std::string result, Strings operands, std::string values = "") {
    forms.push_back({family_, std::move(text), std::move(result), std::move(operands), std::move(values)});
  }
  /// `text` with {} replaced by each word.
  void each(const Strings& words, const std::string& text, const std::string& result, const Strings& operands,
            const std::string& values = "") {
    for (const std::string& word : words)
      add(fmt::format(fmt::runtime(text), word), result, operands, values);
  }

 private:
  std::string family_;
};

inline std::string bits_of(const std::string& type) {
  return type.ends_with("64") ? "b64" : type.ends_with("16") ? "b16" : type.ends_with("8") ? "b16" : "b32";
}

/// Carry chains, packed integers, mixed types and modifiers of the instructions that scalar_forms.cpp lists.
void add_rarer_forms(List& list);

}  // namespace imbrex::conformance
