// SPDX-License-Identifier: Apache-2.0
// Traces a lambda as a kernel of the parameters the tests use.
#pragma once

#include <cctype>
#include <map>
#include <string>

#include "imbrex/lang.h"
#include "lang/trace.h"
#include "passes/promote_constant_variables.h"

namespace imbrex::testing {

using Pointer = Ptr<float16>;

template <class F>
struct Snippet {
  F body;
  void operator()(Int32 m, Int32 n, Pointer p) const {
    grid(1);
    body(m, n, p);
  }
};

template <class F>
std::unique_ptr<ir::Function> trace_snippet(const F& body, std::string_view target = "sm_100a") {
  auto function = lang::trace(Snippet<F>{body}, {}, target);
  passes::promote_constant_variables(
      *function);  // so that texts show values, not the variables that hold them
  return function;
}

/// Unnamed values renumbered in order of appearance.
inline std::string renumber(const std::string& text) {
  std::map<std::string, size_t> numbers;
  std::string out;
  for (size_t i = 0; i < text.size();) {
    out += text[i];
    if (text[i++] != '%' || !std::isdigit(static_cast<unsigned char>(text[i]))) continue;
    std::string number;
    while (std::isdigit(static_cast<unsigned char>(text[i]))) number += text[i++];
    out += std::to_string(numbers.try_emplace(number, numbers.size()).first->second);
  }
  return out;
}

/// The IR of the lambda's body: without the kernel's header, the grid and the line numbers. Names of
/// variables come from the source text, so write the lambda outside the arguments of a test macro (which is
/// one line to the compiler) where they matter; so do the lines that errors quote.
template <class F>
std::string traced(const F& body, std::string_view target = "sm_100a") {
  const std::unique_ptr<ir::Function> function = trace_snippet(body, target);
  ir::verify(*function);
  const std::string text = ir::print(*function);
  std::string out;
  bool is_body = false;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    std::string line = text.substr(begin, end - begin);
    begin = end == std::string::npos ? text.size() : end + 1;
    if (const size_t at = line.rfind(" @"); at != std::string::npos) {
      const bool opens = line.ends_with("{");
      line.resize(at);
      if (opens) line += " {";
    }
    if (is_body && line != "}") out += line.substr(2) + "\n";
    is_body |= line.find("launch_grid") != std::string::npos;
  }
  return renumber(out);
}

/// What CompileError says of the lambda; "" when it traces.
template <class F>
std::string error_of(const F& body, std::string_view target = "sm_100a") {
  try {
    trace_snippet(body, target);
  } catch (const CompileError& error) {
    return error.what();
  }
  return "";
}

}  // namespace imbrex::testing
