// SPDX-License-Identifier: Apache-2.0
#include "codegen/emitter.h"

#include <algorithm>

#include "imbrex/core/error.h"

namespace imbrex::codegen {

ScalarType register_type(DataType type) {
  switch (type.code) {
    case DataType::kBool:
      return ScalarType::pred;
    case DataType::kInt64:
    case DataType::kUInt64:
      return ScalarType::b64;
    case DataType::kFloat16:
    case DataType::kBFloat16:
      return ScalarType::b16;
    case DataType::kFloat32:
    case DataType::kTFloat32:
      return ScalarType::f32;
    case DataType::kFloat64:
      return ScalarType::f64;
    default:
      return ScalarType::b32;
  }
}

ScalarType arithmetic_type(DataType type) {
  switch (type.code) {
    case DataType::kBool:
      return ScalarType::pred;
    case DataType::kInt8:
    case DataType::kInt16:
    case DataType::kInt32:
      return ScalarType::s32;
    case DataType::kUInt8:
    case DataType::kUInt16:
    case DataType::kUInt32:
      return ScalarType::u32;
    case DataType::kInt64:
      return ScalarType::s64;
    case DataType::kUInt64:
      return ScalarType::u64;
    case DataType::kFloat16:
      return ScalarType::f16;
    case DataType::kBFloat16:
      return ScalarType::bf16;
    case DataType::kFloat32:
    case DataType::kTFloat32:
      return ScalarType::f32;
    case DataType::kFloat64:
      return ScalarType::f64;
    default:
      if (type.is_integer()) return type.is_signed() ? ScalarType::s32 : ScalarType::u32;
      throw InternalError("no arithmetic on " + std::string(type.name()));
  }
}

ScalarType matrix_type(DataType type) {
  switch (type.code) {
    case DataType::kFloat16:
      return ScalarType::f16;
    case DataType::kBFloat16:
      return ScalarType::bf16;
    case DataType::kFloat32:
    case DataType::kTFloat32:
      return ScalarType::tf32;
    case DataType::kFloat8E4M3:
      return ScalarType::e4m3;
    case DataType::kFloat8E5M2:
      return ScalarType::e5m2;
    case DataType::kInt8:
      return ScalarType::s8;
    case DataType::kUInt8:
      return ScalarType::u8;
    default:
      throw InternalError("codegen: no matrix instruction multiplies " + std::string(type.name()));
  }
}

ScalarType matrix_sum_type(DataType type) {
  return type == float32 ? ScalarType::f32 : type == float16 ? ScalarType::f16 : ScalarType::s32;
}

Emitter::Emitter(ptx::Module& module, std::string_view entry, bool comments, bool source_lines)
    : module_(module), builder_(module, entry), comments_(comments), source_lines_(source_lines) {
  scopes_.emplace_back();
}

void Emitter::set_location(const SourceLocation& where) {
  if (!source_lines_ || !where.is_known()) return;
  if (where.file != last_file_) {
    last_file_ = where.file;
    last_file_index_ = module_.file(where.file);
  }
  builder_.loc(last_file_index_, where.line);
}

ptx::Instruction& Emitter::emit(Op op, std::initializer_list<Suffix> words,
                                std::initializer_list<Operand> operands) {
  return emit(op, std::span(words.begin(), words.size()), std::span(operands.begin(), operands.size()));
}

ptx::Instruction& Emitter::emit(Op op, std::span<const Suffix> words, std::span<const Operand> operands) {
  // Hoisted code is about to move away from the op, so it does not take the op's comment along.
  if (!comment_.empty() && (hoists_.empty() || hoists_.back().loop == 0)) {
    builder_.comment(comment_);
    comment_.clear();
  }
  return builder_.emit(op, words, operands);
}

Reg Emitter::make(ScalarType type, Op op, std::initializer_list<Suffix> words,
                  std::initializer_list<Operand> operands) {
  std::array<Operand, 8> all;
  if (operands.size() + 1 > all.size()) throw InternalError("too many operands");
  const Reg result = reg(type);
  all[0] = result;
  std::copy(operands.begin(), operands.end(), all.begin() + 1);
  emit(op, std::span(words.begin(), words.size()), std::span(all.data(), operands.size() + 1));
  return result;
}

void Emitter::move(ScalarType type, Reg to, const Operand& from) {
  if (from.is_reg() && from.reg() == to) return;
  if (type == ScalarType::pred && from.kind == ptx::OperandKind::immediate) {
    emit(Op::setp, {from.value ? Mod::eq : Mod::ne, ScalarType::u32}, {to, 0, 0});
    return;
  }
  emit(Op::mov, {type}, {to, from});
}

Reg Emitter::to_register(ScalarType type, const Operand& value) {
  if (value.is_reg() && !value.negated) return value.reg();
  if (value.is_reg()) return make(ScalarType::pred, Op::not_, {ScalarType::pred}, {value.reg()});
  const Reg r = reg(type);
  move(type, r, value);
  return r;
}

void Emitter::enter_scope(bool is_loop) {
  ptx::Function& f = builder_.function();
  Scope& scope = scopes_.emplace_back();
  scope.is_loop = is_loop;
  scope.start = static_cast<uint32_t>(f.body.size());
  scope.first_label = static_cast<uint32_t>(f.labels.size());
}

const Operand* Emitter::find(int64_t key) const {
  for (size_t i = scopes_.size(); i-- > 0;)
    if (auto it = scopes_[i].cache.find(key); it != scopes_[i].cache.end()) return &it->second;
  return nullptr;
}

size_t Emitter::begin_hoist(size_t available) {
  Hoist hoist{static_cast<uint32_t>(builder_.function().body.size()), 0};
  for (size_t i = available + 1; i < scopes_.size() && hoist.loop == 0; ++i)
    if (scopes_[i].is_loop) hoist.loop = i;
  hoists_.push_back(hoist);
  return hoist.loop ? hoist.loop - 1 : depth();
}

void Emitter::end_hoist() {
  const Hoist hoist = hoists_.back();
  hoists_.pop_back();
  if (hoist.loop) move_up(hoist.start, hoist.loop);
}

/// Moves the instructions from `start` on in front of a loop.
void Emitter::move_up(uint32_t start, size_t loop) {
  ptx::Function& f = builder_.function();
  const uint32_t count = static_cast<uint32_t>(f.body.size()) - start;
  const uint32_t target = scopes_[loop].start;
  if (count == 0) return;
  std::rotate(f.body.begin() + target, f.body.begin() + start, f.body.end());
  // Labels at the target that were made before the loop belong to what ends there and stay.
  for (uint32_t i = 0; i < f.labels.size(); ++i) {
    ptx::Label& l = f.labels[i];
    if (l.position == ptx::Label::kUnbound || l.position < target) continue;
    if (l.position > target || i >= scopes_[loop].first_label) l.position += count;
  }
  for (ptx::Pragma& p : f.body_pragmas)
    if (p.position >= target) p.position += count;
  for (size_t i = loop; i < scopes_.size(); ++i) scopes_[i].start += count;
  for (Hoist& h : hoists_)
    if (h.start >= target) h.start += count;
}

}  // namespace imbrex::codegen
