// SPDX-License-Identifier: Apache-2.0
// What the kernel's source text tells that running it cannot: names, and statements that leave a traced block
// early. Everything here is best effort: a file that cannot be read gives no names and no findings.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "imbrex/core/source_location.h"

namespace imbrex::lang {

/// `Int32 offset = ...` or `for (Int32 offset : ...)` at this line gives "offset"; else "". With a callee,
/// only when the initialiser begins with a call of it: `auto x = load_global(...)`.
std::string declared_name(SourceLocation where, std::string_view callee = "");

/// A variable that a declaration makes, and whether a call of the function asked for is the beginning of what makes it.
struct ConstructedName {
  std::string name;
  bool is_by_callee = false;
};
/// Those that the declaration at this line makes, in order: "k_pipe" and "v_pipe" of `Pipeline k_pipe(stages), v_pipe(stages);`.
/// Members in a constructor's list, and what `x.emplace(...)` makes, count too. `callee` is a name without namespaces.
std::vector<ConstructedName> constructed_names(SourceLocation where, std::string_view callee);

struct ParameterNames {
  SourceLocation where;            // of operator()
  std::vector<std::string> names;  // "" where a parameter has none
};
/// The parameters of the operator() that contains this line.
std::optional<ParameterNames> parameter_names(SourceLocation where);

struct EarlyExit {
  int line = 0;
  std::string_view word;  // "return", "break", "continue", "goto" or "else"
};
/// The first statement that would leave, unseen, the block guarded by `if (auto x = callee(...))` at this
/// line: return, goto, or a break or continue of a loop outside the block; or an `else` after it. C++ loops,
/// switches, lambdas and local classes inside the block keep their own.
std::optional<EarlyExit> early_exit(SourceLocation where, std::string_view callee);

}  // namespace imbrex::lang
