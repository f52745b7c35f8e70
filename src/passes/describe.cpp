// SPDX-License-Identifier: Apache-2.0
#include "passes/describe.h"

#include <fmt/format.h>

#include <cstring>

namespace imbrex::passes {
namespace {

std::string place(const SourceLocation& where) {
  if (!where.is_known()) return "";
  const char* slash = std::strrchr(where.file, '/');
  return fmt::format(" at {}:{}", slash ? slash + 1 : where.file, where.line);
}

}  // namespace

std::string op_text(const ir::Op& op) { return std::string(op.info().mnemonic) + place(op.where); }

std::string tensor_text(const ir::Value& value) {
  ir::Type bare = value.type;
  bare.layout.reset();
  std::string text = fmt::format("{} {}", ir::print(value), bare.to_string());
  const ir::Value* made = ir::view_root(const_cast<ir::Value*>(&value));
  if (made != &value) text += ", a view of " + ir::print(*made);
  if (made->def && made->def->where.is_known()) text += ", made" + place(made->def->where);
  return text;
}

}  // namespace imbrex::passes
