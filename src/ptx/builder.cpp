// SPDX-License-Identifier: Apache-2.0
#include "ptx/builder.h"

#include <fmt/format.h>

#include "imbrex/core/error.h"
#include "ptx/insns.h"

namespace imbrex::ptx {
namespace {

struct RegisterClass {
  const char* prefix;
  ScalarType type;
};

// In the order of Builder::ranges_.
constexpr RegisterClass kClasses[] = {
    {"%p", ScalarType::pred},  {"%rs", ScalarType::b16}, {"%r", ScalarType::b32},  {"%rd", ScalarType::b64},
    {"%rq", ScalarType::b128}, {"%f", ScalarType::f32},  {"%fd", ScalarType::f64}, {"%rb", ScalarType::b8}};

size_t class_of(ScalarType type) {
  if (type == ScalarType::pred) return 0;
  if (type == ScalarType::f32) return 5;
  if (type == ScalarType::f64) return 6;
  if (type == ScalarType::b8) return 7;  // pairs of 4-bit floats; other bytes live in 16 bits
  int size = bits(type);
  if (size > 128) throw InternalError(fmt::format("no register holds a .{}", name(type)));
  return size <= 16 ? 1 : size <= 32 ? 2 : size <= 64 ? 3 : 4;
}

}  // namespace

Builder::Builder(Module& module, std::string_view name, bool is_entry, Linkage linkage)
    : module_(module), index_(module.functions.size()) {
  Function& f = module_.functions.emplace_back();
  f.name = name;
  f.is_entry = is_entry;
  f.has_body = true;
  f.linkage = linkage;
  ranges_.fill(Reg::kNone);
}

std::string Builder::unique(std::string name) {
  int& uses = names_[name];
  if (++uses == 1) return name;
  return unique(fmt::format("{}_{}", name, uses));
}

SymbolRef Builder::param(ScalarType type, std::string_view name, int64_t align, int64_t array_size) {
  Variable v;
  v.name = unique(std::string(name));
  v.space = Space::param;
  v.type = type;
  v.align = align;
  if (array_size > 0) v.dims.push_back(array_size);
  function().params.push_back(std::move(v));
  return {Ref::param, static_cast<uint32_t>(function().params.size() - 1)};
}

SymbolRef Builder::variable(Space space, ScalarType type, std::string_view name, int64_t align,
                            int64_t count) {
  Variable v;
  v.name = unique(std::string(name));
  v.space = space;
  v.type = type;
  v.align = align;
  v.dims.push_back(count);
  function().variables.push_back(std::move(v));
  return {Ref::local, static_cast<uint32_t>(function().variables.size() - 1)};
}

Reg Builder::reg(ScalarType type) {
  Function& f = function();
  size_t c = class_of(type);
  if (ranges_[c] == Reg::kNone) {
    ranges_[c] = static_cast<uint32_t>(f.register_decls.size());
    f.register_decls.push_back({kClasses[c].prefix, kClasses[c].type, true, 0});
  }
  f.registers.push_back({ranges_[c], f.register_decls[ranges_[c]].count++, kClasses[c].type});
  return {static_cast<uint32_t>(f.registers.size() - 1)};
}

Reg Builder::reg(ScalarType type, std::string_view name) {
  Function& f = function();
  ScalarType stored = kClasses[class_of(type)].type;
  // "%r" followed by digits would be a name of a range; "%r_x" and "%rx" never are.
  std::string spelled = fmt::format("%{}", name);
  bool ends_in_digit = !name.empty() && name.back() >= '0' && name.back() <= '9';
  bool is_special = find_special(name) || find_special(fmt::format("{}.x", name));
  if (ends_in_digit || is_special) spelled += '_';
  f.register_decls.push_back({unique(std::move(spelled)), stored, false, 1});
  f.registers.push_back({static_cast<uint32_t>(f.register_decls.size() - 1), 0, stored});
  return {static_cast<uint32_t>(f.registers.size() - 1)};
}

Operand Builder::pooled(OperandKind kind, std::span<const Operand> elements) {
  std::vector<Operand>& pool = function().operands;
  Operand o;
  o.kind = kind;
  o.id = static_cast<uint32_t>(pool.size());
  o.count = static_cast<uint32_t>(elements.size());
  pool.insert(pool.end(), elements.begin(), elements.end());
  return o;
}

Operand Builder::vec(std::span<const Reg> elements) {
  std::vector<Operand>& pool = function().operands;
  Operand o;
  o.kind = OperandKind::vector;
  o.id = static_cast<uint32_t>(pool.size());
  o.count = static_cast<uint32_t>(elements.size());
  for (Reg r : elements) pool.push_back(r);
  return o;
}

Operand Builder::tensor(Operand map, std::span<const Operand> coordinates) {
  Operand both[] = {map, vec(coordinates)};
  return pooled(OperandKind::tensor, both);
}

Instruction& Builder::emit(Op op, std::span<const Suffix> suffixes, std::span<const Operand> operands) {
  if (suffixes.size() > Instruction::kMaxSuffixes)
    throw InternalError(fmt::format("{}: {} words after the mnemonic", name(op), suffixes.size()));
  Function& f = function();
  Instruction& i = f.body.emplace_back();
  i.op = op;
  i.suffix_count = static_cast<uint8_t>(suffixes.size());
  std::copy(suffixes.begin(), suffixes.end(), i.suffix_array.begin());
  i.first_operand = static_cast<uint32_t>(f.operands.size());
  i.operand_count = static_cast<uint32_t>(operands.size());
  f.operands.insert(f.operands.end(), operands.begin(), operands.end());
  i.loc = loc_;
  i.comment = pending_comment_;
  pending_comment_ = Instruction::kNone;
  return i;
}

LabelId Builder::label(std::string_view name) {
  function().labels.push_back({unique(fmt::format("${}", name)), Label::kUnbound});
  return {static_cast<uint32_t>(function().labels.size() - 1)};
}

void Builder::bind(LabelId label) {
  Label& l = function().labels[label.id];
  if (l.position != Label::kUnbound) throw InternalError("label " + l.name + " is bound twice");
  l.position = static_cast<uint32_t>(function().body.size());
}

SymbolRef Builder::targets(std::string_view name, std::span<const LabelId> labels) {
  TargetList list;
  list.name = unique(fmt::format("${}", name));
  for (LabelId label : labels) list.targets.push_back(label.id);
  list.position = static_cast<uint32_t>(function().body.size());
  function().target_lists.push_back(std::move(list));
  return {Ref::target_list, static_cast<uint32_t>(function().target_lists.size() - 1)};
}

void Builder::loc(uint32_t file, uint32_t line, uint32_t column) {
  if (line == 0) return;
  std::vector<Loc>& locs = function().locs;
  Loc next{file, line, column};
  if (locs.empty() || !(locs.back() == next)) locs.push_back(next);
  loc_ = static_cast<uint32_t>(locs.size() - 1);
}

void Builder::comment(std::string_view text) {
  std::vector<std::string>& comments = function().comments;
  if (pending_comment_ == Instruction::kNone) {
    pending_comment_ = static_cast<uint32_t>(comments.size());
    comments.emplace_back(text);
  } else {
    comments[pending_comment_].append("\n").append(text);
  }
}

void Builder::pragma(std::string_view text) {
  function().body_pragmas.push_back({std::string(text), static_cast<uint32_t>(function().body.size())});
}

void Builder::finish() {
  for (const Label& l : function().labels)
    if (l.position == Label::kUnbound) throw InternalError("label " + l.name + " is never bound");
}

}  // namespace imbrex::ptx
