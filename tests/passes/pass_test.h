// SPDX-License-Identifier: Apache-2.0
// Before and after: a pass on the body of a small kernel.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "imbrex/core/error.h"
#include "ir/ir.h"

namespace imbrex::passes {

/// A kernel f(%n, %m: int32, %c: bool, %p: ptr<float16>) of 4 warps with this body, parsed and verified.
inline std::unique_ptr<ir::Function> kernel(const std::string& body, const std::string& target = "sm_100a") {
  auto f = ir::parse("kernel f(%n: int32, %m: int32, %c: bool, %p: ptr<float16>) target " + target +
                     " warps 4 from \"f.cpp\":1 {\n" + body + "\n}\n");
  ir::verify(*f);
  return f;
}

/// The host block and body as text, with values (parameters aside) renumbered in the order of the text, so
/// that only what is computed counts.
inline std::string canonical(ir::Function& f) {
  int next = 0;
  const auto renumber = [&](ir::Value* value) {
    value->name.clear();
    value->id = next++;
  };
  const auto visit = [&](ir::Op& op) {
    for (ir::Value* result : op.results) renumber(result);
    for (auto& region : op.regions)
      for (ir::Value* argument : region->args) renumber(argument);
  };
  ir::walk(f.host, visit);
  ir::walk(f.body, visit);
  const std::string text = ir::print(f);
  return text.substr(text.find("{\n") + 2);
}

/// Expects that the passes, in turn, make `after` of `before`, up to the names of values, and that it
/// verifies.
template <class... Passes>
void expect_rewrite(const std::string& before, const std::string& after, Passes... passes) {
  const auto f = kernel(before);
  (passes(*f), ...);
  ASSERT_NO_THROW(ir::verify(*f)) << ir::print(*f);
  EXPECT_EQ(canonical(*f), canonical(*kernel(after)));
}

/// What a pass says when it refuses a kernel, or "passes".
template <class Pass>
std::string refusal(const std::string& body, Pass pass, const std::string& target = "sm_100a") {
  const auto f = kernel(body, target);
  try {
    pass(*f);
  } catch (const CompileError& error) {
    return error.what();
  }
  return "passes";
}

}  // namespace imbrex::passes
