// SPDX-License-Identifier: Apache-2.0
#include "ptx/object_names.h"

#include <algorithm>

namespace imbrex::ptx {

namespace {

constexpr std::string_view kReady = "$ready";

}  // namespace

std::string ready_label(std::string_view variable) {
  if (variable.empty()) return "barriers_end";
  std::string label(variable);
  std::ranges::replace(label, '.', '$');  // PTX's names have no dots
  return label.append(kReady);
}

std::string initialised_variable(const Function& function, uint32_t index) {
  const auto belongs = [](Op op) { return op == Op::mbarrier_init || op == Op::fence_mbarrier_init; };
  uint32_t end = index;
  while (end < function.body.size() && belongs(function.body[end].op)) ++end;
  for (const Label& label : function.labels)  // another array may begin behind the first of them
    if (label.position > index) end = std::min(end, label.position);
  for (const Label& label : function.labels) {
    const size_t ready = label.name.rfind(kReady);
    if (label.position != end || end == index || ready == std::string::npos || label.name[0] != '$') continue;
    std::string variable = label.name.substr(1, ready - 1);
    std::ranges::replace(variable, '$', '.');
    return variable;
  }
  return "";
}

}  // namespace imbrex::ptx
