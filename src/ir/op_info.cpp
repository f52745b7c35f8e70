// SPDX-License-Identifier: Apache-2.0
// ops.def expanded into OpInfo: the specification strings are read once, on first use.
#include "ir/op_info.h"

#include <string>
#include <unordered_map>

#include "imbrex/core/error.h"
#include "ir/ir.h"

namespace imbrex::ir {
namespace {

constexpr uint32_t bit(TypeKind kind) { return 1u << static_cast<int>(kind); }
constexpr uint32_t kViewBits = bit(TypeKind::kShared) | bit(TypeKind::kGlobal) | bit(TypeKind::kTensorMemory);

struct KindWord {
  std::string_view word;
  uint32_t kinds;
  bool is_integer = false;
  bool is_bool = false;
};
constexpr KindWord kKindWords[] = {
    {"int", bit(TypeKind::kScalar), true, false},
    {"bool", bit(TypeKind::kScalar), false, true},
    {"scalar", bit(TypeKind::kScalar)},
    {"ptr", bit(TypeKind::kPointer)},
    {"var", bit(TypeKind::kVariable)},
    {"reg", bit(TypeKind::kRegister)},
    {"shared", bit(TypeKind::kShared)},
    {"global", bit(TypeKind::kGlobal)},
    {"tmem", bit(TypeKind::kTensorMemory)},
    {"barrier", bit(TypeKind::kBarrier)},
    {"map", bit(TypeKind::kTensorMap)},
    {"num", bit(TypeKind::kScalar) | bit(TypeKind::kRegister)},
    {"tensor", bit(TypeKind::kRegister) | kViewBits},
    {"view", kViewBits},
    {"tiles", bit(TypeKind::kGlobal) | bit(TypeKind::kTensorMap)},
    {"any", ~0u},
};

struct AttrWord {
  std::string_view word;
  AttrKind kind;
};
constexpr AttrWord kAttrWords[] = {
    {"int", AttrKind::kInt},       {"ints", AttrKind::kInts},     {"bool", AttrKind::kBool},
    {"float", AttrKind::kFloat},   {"string", AttrKind::kString}, {"dtype", AttrKind::kDType},
    {"layout", AttrKind::kLayout},
};

[[noreturn]] void table_error(std::string_view mnemonic, std::string_view item) {
  throw InternalError("ops.def: " + std::string(mnemonic) + ": cannot read '" + std::string(item) + "'");
}

/// "name:kind?" taken apart; calls add(name, kind, suffix) for each item of a blank-separated list.
template <class Add>
void for_each_item(std::string_view mnemonic, std::string_view spec, Add add) {
  while (!spec.empty()) {
    const size_t end = std::min(spec.find(' '), spec.size());
    std::string_view item = spec.substr(0, end);
    spec.remove_prefix(std::min(end + 1, spec.size()));
    const size_t colon = item.find(':');
    if (colon == std::string_view::npos) table_error(mnemonic, item);
    const char last = item.back();
    const char suffix = last == '?' || last == '*' ? last : '\0';
    std::string_view kind = item.substr(colon + 1, item.size() - colon - 1 - (suffix != '\0'));
    if (!add(item.substr(0, colon), kind, suffix)) table_error(mnemonic, item);
  }
}

std::vector<OperandSpec> parse_operands(std::string_view mnemonic, std::string_view spec) {
  std::vector<OperandSpec> out;
  for_each_item(mnemonic, spec, [&](std::string_view name, std::string_view kind, char suffix) {
    if (!out.empty() && out.back().is_variadic) return false;
    for (const KindWord& word : kKindWords)
      if (word.word == kind) {
        out.push_back({name, word.kinds, word.is_integer, word.is_bool, suffix == '*', suffix == '?'});
        return true;
      }
    return false;
  });
  return out;
}

std::vector<AttrSpec> parse_attrs(std::string_view mnemonic, std::string_view spec) {
  std::vector<AttrSpec> out;
  for_each_item(mnemonic, spec, [&](std::string_view name, std::string_view kind, char suffix) {
    for (const AttrWord& word : kAttrWords)
      if (word.word == kind) {
        out.push_back({name, word.kind, suffix == '?'});
        return true;
      }
    return false;
  });
  return out;
}

struct Row {
  std::string_view mnemonic, operands, results, attrs;
  int regions;
  Effect effect;
  Scope scope;
  std::string_view arch, meaning;
};
constexpr Row kRows[] = {
#define IR_OP(id, mnemonic, operands, results, attrs, regions, effect, scope, arch, rules, traffic, facts, \
              meaning)                                                                                     \
  {mnemonic, operands, results, attrs, regions, Effect::k##effect, Scope::k##scope, arch, meaning},
#include "ir/ops.def"
#undef IR_OP
};
constexpr size_t kOpCount = static_cast<size_t>(Opcode::kCount);
static_assert(std::size(kRows) == kOpCount);

struct Table {
  std::vector<OpInfo> ops;
  std::unordered_map<std::string_view, Opcode> by_mnemonic;

  Table() {
    ops.reserve(kOpCount);
    for (size_t i = 0; i < kOpCount; ++i) {
      const Row& row = kRows[i];
      const Opcode code = static_cast<Opcode>(i);
      ops.push_back({code, row.mnemonic, parse_operands(row.mnemonic, row.operands),
                     parse_operands(row.mnemonic, row.results), parse_attrs(row.mnemonic, row.attrs),
                     row.regions, row.effect, row.scope, row.arch, row.meaning});
      if (!by_mnemonic.emplace(row.mnemonic, code).second) table_error(row.mnemonic, "mnemonic used twice");
    }
  }
};

const Table& table() {
  static const Table instance;
  return instance;
}

}  // namespace

const OpInfo& info(Opcode code) { return table().ops.at(static_cast<size_t>(code)); }

std::optional<Opcode> opcode_from_mnemonic(std::string_view mnemonic) {
  const auto found = table().by_mnemonic.find(mnemonic);
  if (found == table().by_mnemonic.end()) return std::nullopt;
  return found->second;
}

}  // namespace imbrex::ir
