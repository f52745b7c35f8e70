// SPDX-License-Identifier: Apache-2.0
#include "passes/fold.h"

#include <bit>
#include <unordered_map>
#include <unordered_set>

#include "passes/evaluate.h"
#include "passes/rewrite.h"
#include "passes/simplify.h"

namespace imbrex::passes {
namespace {

using ir::Block;
using ir::Op;
using ir::Opcode;
using ir::Value;

// --- merging of equal ops ---

bool same_attr(const ir::AttrValue& a, const ir::AttrValue& b) {
  if (a.index() != b.index()) return false;
  if (const double* x = std::get_if<double>(&a))  // -0 and 0 are different numbers here, NaN is itself
    return std::bit_cast<uint64_t>(*x) == std::bit_cast<uint64_t>(std::get<double>(b));
  return a == b;
}

bool computes_the_same(const Op& a, const Op& b) {
  if (a.code != b.code || a.operands != b.operands || a.attrs.size() != b.attrs.size()) return false;
  for (const ir::Attr& attr : a.attrs) {
    const ir::AttrValue* other = b.attr(attr.name);
    if (!other || !same_attr(attr.value, *other)) return false;
  }
  for (size_t i = 0; i < a.results.size(); ++i)
    if (a.results[i]->type != b.results[i]->type) return false;
  return true;
}

size_t hash_of(const Op& op) {
  size_t hash = static_cast<size_t>(op.code);
  const auto mix = [&](size_t x) { hash = (hash ^ x) * 0x9E3779B97F4A7C15u; };
  for (const Value* operand : op.operands) mix(std::bit_cast<size_t>(operand));
  for (const ir::Attr& attr : op.attrs) {
    if (const int64_t* i = std::get_if<int64_t>(&attr.value)) mix(static_cast<size_t>(*i));
    if (const double* f = std::get_if<double>(&attr.value)) mix(std::bit_cast<size_t>(*f));
  }
  return hash;
}

/// Ops seen so far that dominate the present place.
class SeenOps {
 public:
  size_t enter() const { return order_.size(); }
  void leave(size_t mark) {
    for (; order_.size() > mark; order_.pop_back()) {
      auto [begin, end] = ops_.equal_range(hash_of(*order_.back()));
      for (auto it = begin; it != end; ++it)
        if (it->second == order_.back()) {
          ops_.erase(it);
          break;
        }
    }
  }
  /// An earlier op that computes the same, or null; then `op` is remembered.
  Op* find_or_add(Op& op) {
    const size_t hash = hash_of(op);
    auto [begin, end] = ops_.equal_range(hash);
    for (auto it = begin; it != end; ++it)
      if (computes_the_same(*it->second, op)) return it->second;
    ops_.emplace(hash, &op);
    order_.push_back(&op);
    return nullptr;
  }

 private:
  std::unordered_multimap<size_t, Op*> ops_;
  std::vector<Op*> order_;
};

/// Scalars and views: merging them costs no registers worth speaking of, as merging tensors would.
bool is_mergeable(const Op& op) {
  if (op.info().effect != ir::Effect::kPure || !op.regions.empty()) return false;
  for (const Value* result : op.results)
    if (result->type.kind == ir::TypeKind::kRegister) return false;
  return true;
}

// --- folding ---

class Folder {
 public:
  explicit Folder(ir::Function& function) : function_(function), builder_(function), ranges_(function) {
    ir::walk(function.body, [this](const Op& op) {
      if (op.code != Opcode::kAssume || !op.operands[0]->def) return;
      const Op* condition = op.operands[0]->def;
      premises_.insert(condition);
      for (const Value* operand : condition->operands)
        if (operand->def) premises_.insert(operand->def);
    });
  }

  void run() {
    block(function_.host);
    block(function_.body);
    for (Value*& extent : function_.grid) extent = map_(extent);
  }

 private:
  void block(Block& block) {
    const size_t mark = seen_.enter();
    rebuild(block, [this](Op& op, Block& to) { visit(op, to); });
    if (&block != &function_.host) seen_.leave(mark);  // host values are visible in the body
  }

  void visit(Op& op, Block& to) {
    if (!to.ops.empty() && ir::has(to.ops.back()->code, ir::Fact::kEndsBlock))
      return;  // from a branch taken for good
    map_.apply(op);
    if (op.code == Opcode::kIf && take_branch(op, to)) return;
    if (op.code == Opcode::kFastDivmod && divide_by_constant(op, to)) return;
    if (!op.results.empty() && op.regions.empty()) {
      const size_t before = to.ops.size();
      builder_.set_insertion_point(to);
      builder_.set_location(op.where);
      if (Value* value = premises_.count(&op) ? nullptr : simpler(op)) {
        keep_names(*value, *op.result());
        map_.set(op.result(), value);
        revisit(to, before);
        return;
      }
    }
    if (is_mergeable(op))
      if (Op* earlier = seen_.find_or_add(op)) {
        for (size_t i = 0; i < op.results.size(); ++i) map_.set(op.results[i], earlier->results[i]);
        return;
      }
    append(to, op);
    for (auto& region : op.regions) block(*region);
  }

  Value* simpler(const Op& op) {
    std::vector<Constant> numbers;
    for (const Value* operand : op.operands)
      if (auto number = constant_of(operand)) numbers.push_back(*number);
    if (!numbers.empty() && numbers.size() == op.operands.size())
      if (auto result = evaluate(op, numbers)) return materialize(builder_, *result);
    return simplify(op, builder_, ranges_);
  }

  /// Folds what `simpler` has just made: ops of `to` from `begin` on.
  void revisit(Block& to, size_t begin) {
    std::vector<Op*> made(to.ops.begin() + static_cast<std::ptrdiff_t>(begin), to.ops.end());
    to.ops.resize(begin);
    for (Op* op : made) visit(*op, to);
  }

  /// A value that takes another's place takes its name, if it has none and was just made.
  void keep_names(Value& value, Value& old) {
    if (value.name.empty() && value.def && !value.def->parent->ops.empty() &&
        value.def == value.def->parent->ops.back())
      value.name.swap(old.name);
  }

  bool take_branch(Op& op, Block& to) {
    const auto condition = ir::constant_int(op.operands[0]);
    if (!condition) return false;
    rebuild(*op.regions[*condition ? 0 : 1], [&](Op& inner, Block&) { visit(inner, to); });
    return true;
  }

  /// A divisor known here needs no number from the host.
  bool divide_by_constant(Op& op, Block& to) {
    const auto divisor = ir::constant_int(op.operands[1]);
    if (!divisor || *divisor <= 0) return false;
    Value* a = op.operands[0];
    const size_t before = to.ops.size();
    builder_.set_insertion_point(to);
    builder_.set_location(op.where);
    const auto number = [&](int64_t x) { return builder_.constant(a->type.dtype, x); };
    const uint64_t d = static_cast<uint64_t>(*divisor);
    Value* quotient = std::has_single_bit(d) ? builder_.binary(Opcode::kShr, a, number(std::countr_zero(d)))
                                             : builder_.binary(Opcode::kDiv, a, number(*divisor));
    Value* remainder = std::has_single_bit(d) ? builder_.binary(Opcode::kAnd, a, number(*divisor - 1))
                                              : builder_.binary(Opcode::kRem, a, number(*divisor));
    if (op.results[0]->type != quotient->type || op.results[1]->type != quotient->type) {
      to.ops.resize(before);
      return false;
    }
    quotient->name.swap(op.results[0]->name);
    remainder->name.swap(op.results[1]->name);
    map_.set(op.results[0], quotient);
    map_.set(op.results[1], remainder);
    revisit(to, before);
    return true;
  }

  ir::Function& function_;
  ir::Builder builder_;
  ir::Ranges ranges_;  // of the function before; what is replaced has an equal in its place
  // What assumptions consist of: simplified by the very facts they state, they would state them no more.
  std::unordered_set<const Op*> premises_;
  ValueMap map_;
  SeenOps seen_;
};

}  // namespace

void fold(ir::Function& function) { Folder(function).run(); }

}  // namespace imbrex::passes
