// SPDX-License-Identifier: Apache-2.0
// Operands of instructions. See parser.h.
#include <fmt/format.h>

#include <algorithm>

#include "ptx/insns.h"
#include "ptx/parser.h"

namespace imbrex::ptx {

void BodyParser::operands(Instruction& i) {
  size_t mark = scratch_.size();
  auto commit = [&] {
    i.first_operand = static_cast<uint32_t>(f_.operands.size());
    i.operand_count = static_cast<uint32_t>(scratch_.size() - mark);
    f_.operands.insert(f_.operands.end(), scratch_.begin() + static_cast<ptrdiff_t>(mark), scratch_.end());
    scratch_.resize(mark);
  };
  try {
    if (i.op == Op::call) {
      call_operands();
    } else if (!lex_.at(';')) {
      bool first = true;
      do {
        bool wants_label = (i.op == Op::bra && first) || (i.op == Op::brx_idx && !first);
        // Not push_back(operand()): operand() uses the scratch space itself.
        Operand o = !wants_label ? operand() : i.op == Op::bra ? label_operand() : list_operand();
        scratch_.push_back(o);
        first = false;
      } while (lex_.accept(','));
    }
  } catch (const SyntaxError&) {
    scratch_.resize(mark);
    throw;
  }
  commit();
  // References to lists were noted before their place in the pool was known.
  for (auto r = list_references_.rbegin(); r != list_references_.rend() && r->operand == Reg::kNone; ++r)
    r->operand = i.first_operand + i.operand_count - 1;
}

// [(results),] callee [, (arguments)] [, prototype]; in the tree always results, callee, arguments, and the
// prototype if any.
void BodyParser::call_operands() {
  Operand results = pooled(OperandKind::tuple, nullptr, 0);
  if (lex_.at('(')) {
    results = tuple();
    p_.expect(',');
  }
  scratch_.push_back(results);
  const Token t = lex_.peek();
  Operand callee = named(lex_.next());
  if (callee.kind != OperandKind::reg && callee.ref != Ref::function)
    throw SyntaxError{t.pos, fmt::format("'{}' is neither a function nor a register", t.text), ""};
  scratch_.push_back(callee);
  Operand arguments = pooled(OperandKind::tuple, nullptr, 0);
  bool more = lex_.accept(',');
  if (more && lex_.at('(')) {
    arguments = tuple();
    more = lex_.accept(',');
  }
  scratch_.push_back(arguments);
  if (more) scratch_.push_back(list_operand());
}

// An operand, or a pair of them: %r1|%p1.
Operand BodyParser::operand() {
  Operand first = simple_operand();
  if (!lex_.at('|') || (first.kind != OperandKind::reg && first.kind != OperandKind::sink)) return first;
  lex_.next();
  Operand both[] = {first, simple_operand()};
  return pooled(OperandKind::pair, both, 2);
}

Operand BodyParser::simple_operand() {
  const Token t = lex_.peek();
  if (t.kind == TokenKind::word) {
    lex_.next();
    Operand o = named(t);
    if (o.kind == OperandKind::symbol && (lex_.at('+') || lex_.at('-'))) o.value = p_.constant(4);
    return o;
  }
  switch (t.punctuation) {
    case '[':
      return bracketed();
    case '{':
      return vector();
    case '!': {
      lex_.next();
      const Token predicate = lex_.peek();
      Operand o = named(lex_.next());
      if (o.kind != OperandKind::reg || f_.type_of(o.reg()) != ScalarType::pred)
        throw SyntaxError{predicate.pos, "'!' stands before something that is no predicate register", ""};
      o.negated = true;
      return o;
    }
    default:
      return immediate();
  }
}

Operand BodyParser::immediate() {
  const Token t = lex_.peek();
  if (t.kind == TokenKind::number) {
    Operand number = parse_number(t);
    if (number.kind != OperandKind::immediate || number.is_unsigned) {
      lex_.next();
      return number;
    }
  }
  if (lex_.accept('-')) {
    if (lex_.peek().kind == TokenKind::number) {
      Operand number = parse_number(lex_.peek());
      if (number.kind != OperandKind::immediate) {
        lex_.next();
        number.value ^= static_cast<int64_t>(uint64_t{1} << (number.kind == OperandKind::f64 ? 63 : 31));
        return number;
      }
    }
    return Operand(static_cast<int64_t>(0 - static_cast<uint64_t>(p_.constant(7))));
  }
  if (t.kind != TokenKind::number && t.punctuation != '(' && t.punctuation != '~')
    lex_.fail_expected("an operand");
  return Operand(p_.constant(1));  // above '|', which pairs operands
}

// [base + offset] or [map, {coordinates}].
Operand BodyParser::bracketed() {
  p_.expect('[');
  Operand base;
  if (lex_.peek().kind == TokenKind::word && lex_.peek().text != "WARP_SZ") {
    const Token t = lex_.next();
    base = named(t);
    bool addressable = base.kind == OperandKind::reg || (base.kind == OperandKind::symbol &&
                                                         base.ref != Ref::label && base.ref != Ref::function);
    if (!addressable) throw SyntaxError{t.pos, fmt::format("'{}' is no address", t.text), ""};
    base.kind = OperandKind::address;
    base.value = 0;
    if (lex_.at('+') || lex_.at('-')) base.value = p_.constant(4);
  } else {
    base = address(p_.constant());
  }
  if (lex_.accept(',')) {
    if (!lex_.at('{')) lex_.fail_expected("the coordinates of a tensor, '{'");
    Operand both[] = {base, vector()};
    p_.expect(']');
    return pooled(OperandKind::tensor, both, 2);
  }
  p_.expect(']');
  return base;
}

Operand BodyParser::vector() {
  p_.expect('{');
  size_t mark = scratch_.size();
  if (!lex_.at('}')) {
    do {
      if (lex_.at('{')) lex_.fail("a vector inside a vector");
      Operand o = simple_operand();
      scratch_.push_back(o);
    } while (lex_.accept(','));
  }
  p_.expect('}');
  Operand out = pooled(OperandKind::vector, scratch_.data() + mark, scratch_.size() - mark);
  scratch_.resize(mark);
  return out;
}

Operand BodyParser::tuple() {
  p_.expect('(');
  size_t mark = scratch_.size();
  if (!lex_.at(')')) {
    do {
      Operand o = simple_operand();
      scratch_.push_back(o);
    } while (lex_.accept(','));
  }
  p_.expect(')');
  Operand out = pooled(OperandKind::tuple, scratch_.data() + mark, scratch_.size() - mark);
  scratch_.resize(mark);
  return out;
}

// What a word names: a register, `_`, a special register, a variable or a function, the last two with an
// offset.
Operand BodyParser::named(const Token& t) {
  if (t.kind != TokenKind::word)
    throw SyntaxError{t.pos, fmt::format("expected a name, found '{}'", t.text.substr(0, 60)), ""};
  if (t.text == "_") return sink();
  if (std::optional<Reg> reg = find_register(t.text)) return *reg;
  if (t.text[0] == '%') {
    const Token component = lex_.peek();
    if (component.kind == TokenKind::dot_word && component.text.data() == t.text.data() + t.text.size() + 1) {
      if (std::optional<SpecialReg> special = find_special(Lexer::joined(t, component).substr(1))) {
        lex_.next();
        return *special;
      }
      throw SyntaxError{t.pos, fmt::format("unknown special register '{}.{}'", t.text, component.text), ""};
    }
    if (std::optional<SpecialReg> special = find_special(t.text.substr(1))) return *special;
  }
  if (t.text == "WARP_SZ") return Operand(32);
  SymbolRef symbol;
  const BodyName* local = names_.find(t.text);
  if (local != nullptr && local->kind == BodyName::symbol) {
    symbol = local->ref;
  } else if (const SymbolRef* global = p_.symbols_.find(t.text); global != nullptr) {
    symbol = *global;
  }
  if (symbol.ref == Ref::none) unknown_name(t);
  Operand o = symbol;
  return o;
}

Operand BodyParser::label_operand() {
  const Token t = lex_.peek();
  p_.expect_word("a label");
  return LabelId{label_reference(t)};
}

// The last operand of brx.idx or call: a list of targets or a prototype, which may stand further down.
Operand BodyParser::list_operand() {
  const Token t = lex_.peek();
  p_.expect_word("the name of a list of targets or of a prototype");
  const BodyName* known = names_.find(t.text);
  if (known != nullptr && is_list(*known)) return known->ref;
  list_references_.push_back({t.text, Reg::kNone, t.pos});
  return SymbolRef{Ref::target_list, 0};
}

Operand BodyParser::pooled(OperandKind kind, const Operand* elements, size_t count) {
  Operand o;
  o.kind = kind;
  o.id = static_cast<uint32_t>(f_.operands.size());
  o.count = static_cast<uint32_t>(count);
  f_.operands.insert(f_.operands.end(), elements, elements + count);
  return o;
}

}  // namespace imbrex::ptx
