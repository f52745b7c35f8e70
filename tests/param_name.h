// SPDX-License-Identifier: Apache-2.0
// Names of tests with parameters that say which parameter it is: "Shapes/Copies.ArriveWithZerosOutside/float16_37x40_by_16x64"
// instead of ".../1". The parameter's type has an operator<<, so that failures show it too and not its bytes, which
// tests/structure/parameters checks.
#pragma once

#include <gtest/gtest.h>

#include <cctype>
#include <string>
#include <string_view>

namespace imbrex {

/// Letters and digits of a text; whatever is between them becomes one '_', and a minus sign "minus".
inline std::string identifier(std::string_view text) {
  std::string name;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const bool is_minus =
        c == '-' && i + 1 < text.size() && std::isdigit(static_cast<unsigned char>(text[i + 1]));
    if (std::isalnum(c) || is_minus)
      name += is_minus ? std::string("minus") : std::string(1, static_cast<char>(c));
    else if (!name.empty() && name.back() != '_')
      name += '_';
  }
  while (!name.empty() && name.back() == '_') name.pop_back();
  return name;
}

/// The last argument of INSTANTIATE_TEST_SUITE_P: what the parameter prints.
struct ParamName {
  template <class T>
  std::string operator()(const ::testing::TestParamInfo<T>& info) const {
    return identifier(::testing::PrintToString(info.param));
  }
};

/// For parameters that are long or print the same: their number, then the beginning of what they print.
struct NumberedParamName {
  template <class T>
  std::string operator()(const ::testing::TestParamInfo<T>& info) const {
    return std::to_string(info.index) + "_" + identifier(::testing::PrintToString(info.param)).substr(0, 60);
  }
};

}  // namespace imbrex
