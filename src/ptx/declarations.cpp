// SPDX-License-Identifier: Apache-2.0
// Declarations: variables, parameters, initialisers, constant expressions. See parser.h.
#include <fmt/format.h>

#include <bit>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "core/text.h"
#include "ptx/insns.h"
#include "ptx/parser.h"

namespace imbrex::ptx {
namespace {

constexpr int64_t kMaxArrayBytes = int64_t{1} << 44;
constexpr int64_t kMaxInitialiserBytes = int64_t{1} << 28;

bool parse_digits(std::string_view digits, int base, uint64_t& value) {
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  return error == std::errc() && end == digits.data() + digits.size() && !digits.empty();
}

// The bits of a number as an element of a variable's type.
uint64_t element_bits(const Operand& number, ScalarType type) {
  if (!is_float(type) || bits(type) < 32) return static_cast<uint64_t>(number.value);
  double value = number.kind == OperandKind::f32   ? std::bit_cast<float>(static_cast<uint32_t>(number.value))
                 : number.kind == OperandKind::f64 ? std::bit_cast<double>(number.value)
                                                   : static_cast<double>(number.value);
  if (type == ScalarType::f64) return std::bit_cast<uint64_t>(value);
  if (number.kind == OperandKind::f32) return static_cast<uint64_t>(number.value);  // NaN bits survive
  return std::bit_cast<uint32_t>(static_cast<float>(value));
}

}  // namespace

Operand parse_number(const Token& token) {
  std::string_view t = token.text;
  auto fail = [&](const char* what) -> Operand {
    throw SyntaxError{token.pos, fmt::format("'{}' is no {}", t.substr(0, 40), what), ""};
  };
  char second = t.size() > 1 ? static_cast<char>(t[1] | 32) : '\0';
  uint64_t value = 0;
  if (t[0] == '0' && (second == 'f' || second == 'd')) {
    size_t digits = second == 'f' ? 8 : 16;
    if (t.size() != digits + 2 || !parse_digits(t.substr(2), 16, value))
      return fail(second == 'f' ? "float: 0f takes 8 hexadecimal digits"
                                : "double: 0d takes 16 hexadecimal digits");
    Operand o;
    o.kind = second == 'f' ? OperandKind::f32 : OperandKind::f64;
    o.value = static_cast<int64_t>(value);
    return o;
  }
  bool hex = t[0] == '0' && second == 'x';
  if (!hex && t.find_first_of(".eE") != std::string_view::npos) {
    std::string copy(t);
    char* end = nullptr;
    double parsed = std::strtod(copy.c_str(), &end);
    if (end != copy.c_str() + copy.size()) return fail("number");
    return Operand(parsed);
  }
  bool is_unsigned = t.back() == 'U' || t.back() == 'u';
  std::string_view digits = is_unsigned ? t.substr(0, t.size() - 1) : t;
  bool ok = hex                                 ? parse_digits(digits.substr(2), 16, value)
            : digits[0] == '0' && second == 'b' ? parse_digits(digits.substr(2), 2, value)
            : digits[0] == '0'                  ? parse_digits(digits, 8, value)
                                                : parse_digits(digits, 10, value);
  if (!ok) return fail("number of at most 64 bits");
  Operand o(value);
  o.is_unsigned |= is_unsigned;
  return o;
}

void Parser::expect(char punctuation) {
  if (!lex_.accept(punctuation)) lex_.fail_expected(fmt::format("'{}'", punctuation));
}

std::string_view Parser::expect_word(std::string_view what) {
  if (lex_.peek().kind != TokenKind::word) lex_.fail_expected(what);
  return lex_.next().text;
}

std::string Parser::expect_string() {
  if (lex_.peek().kind != TokenKind::string) lex_.fail_expected("a string");
  return std::string(lex_.next().text);
}

ScalarType Parser::expect_type() {
  if (lex_.peek().kind != TokenKind::dot_word) lex_.fail_expected("a type such as .b32");
  std::optional<ScalarType> type = find_type(lex_.peek().text);
  if (!type) lex_.fail_expected("a type such as .b32");
  lex_.next();
  return *type;
}

// Precedence climbing, as C has it: | ^ & (<< >>) (+ -) (* / %). Unsigned arithmetic, so that nothing
// overflows.
int64_t Parser::constant(int precedence) {
  if (++depth_ > kMaxDepth) lex_.fail("expression is nested too deeply");
  uint64_t left = 0;
  const Token t = lex_.peek();
  if (lex_.accept('-')) {
    left = 0 - static_cast<uint64_t>(constant(7));
  } else if (lex_.accept('+')) {
    left = static_cast<uint64_t>(constant(7));
  } else if (lex_.accept('~')) {
    left = ~static_cast<uint64_t>(constant(7));
  } else if (lex_.accept('!')) {
    left = constant(7) == 0;
  } else if (lex_.accept('(')) {
    if (lex_.accept_dot("s64") || lex_.accept_dot("u64")) {  // a cast, which changes no bit
      expect(')');
      left = static_cast<uint64_t>(constant(7));
    } else {
      left = static_cast<uint64_t>(constant(0));
      expect(')');
    }
  } else if (t.kind == TokenKind::number) {
    lex_.next();
    Operand number = parse_number(t);
    if (number.kind != OperandKind::immediate)
      throw SyntaxError{t.pos, "expected an integer, found a float", ""};
    left = static_cast<uint64_t>(number.value);
  } else if (t.kind == TokenKind::word && t.text == "WARP_SZ") {
    lex_.next();
    left = 32;
  } else {
    lex_.fail_expected("an integer");
  }
  for (;;) {
    char op = lex_.peek().punctuation;
    int level = op == '|'                             ? 1
                : op == '^'                           ? 2
                : op == '&'                           ? 3
                : op == '<' || op == '>'              ? 4
                : op == '+' || op == '-'              ? 5
                : op == '*' || op == '/' || op == '%' ? 6
                                                      : 0;
    if (level == 0 || level <= precedence) break;
    lex_.next();
    if (level == 4) expect(op);
    SourcePos pos = lex_.peek().pos;
    uint64_t right = static_cast<uint64_t>(constant(level));
    int64_t signed_left = static_cast<int64_t>(left);
    int64_t signed_right = static_cast<int64_t>(right);
    switch (op) {
      case '|':
        left |= right;
        break;
      case '^':
        left ^= right;
        break;
      case '&':
        left &= right;
        break;
      case '<':
        left = right < 64 ? left << right : 0;
        break;
      case '>':
        left = static_cast<uint64_t>(signed_left >> (right < 64 ? right : 63));
        break;
      case '+':
        left += right;
        break;
      case '-':
        left -= right;
        break;
      case '*':
        left *= right;
        break;
      default:
        if (right == 0) throw SyntaxError{pos, "division by zero", ""};
        if (signed_right == -1)
          left = op == '/' ? 0 - left : 0;
        else
          left = static_cast<uint64_t>(op == '/' ? signed_left / signed_right : signed_left % signed_right);
    }
  }
  --depth_;
  return static_cast<int64_t>(left);
}

int64_t Parser::constant_in(int64_t low, int64_t high, std::string_view what) {
  SourcePos pos = lex_.peek().pos;
  int64_t value = constant();
  if (value < low || value > high)
    throw SyntaxError{pos, fmt::format("expected {} from {} to {}, found {}", what, low, high, value), ""};
  return value;
}

Linkage Parser::accept_linkage() {
  if (lex_.accept_dot("extern")) return Linkage::external;
  if (lex_.accept_dot("visible")) return Linkage::visible;
  if (lex_.accept_dot("weak")) return Linkage::weak;
  if (lex_.accept_dot("common")) return Linkage::common;
  return Linkage::internal;
}

// `.attribute(.managed, .unified(1, 2))`: the words and their arguments as written, without dots and spaces.
std::vector<std::string> Parser::attributes() {
  std::vector<std::string> out;
  while (lex_.accept_dot("attribute")) {
    expect('(');
    do {
      if (lex_.peek().kind != TokenKind::dot_word) lex_.fail_expected("an attribute such as .managed");
      std::string word(lex_.next().text);
      if (lex_.accept('(')) {
        word += '(';
        do word += (word.back() == '(' ? "" : ", ") + std::to_string(constant());
        while (lex_.accept(','));
        expect(')');
        word += ')';
      }
      out.push_back(std::move(word));
    } while (lex_.accept(','));
    expect(')');
  }
  return out;
}

std::array<int, 3> Parser::triple() {
  std::array<int, 3> out{1, 1, 1};
  for (size_t i = 0; i < 3; ++i) {
    if (i > 0 && !lex_.accept(',')) break;
    out[i] = static_cast<int>(constant_in(1, 1 << 30, "a size"));
  }
  return out;
}

void Parser::variables(Space space, Linkage linkage, std::vector<Variable>& out) {
  Variable head;
  head.space = space;
  head.linkage = linkage;
  head.attributes = attributes();
  if (lex_.accept_dot("align")) head.align = constant_in(1, 1 << 20, "an alignment");
  if (lex_.accept_dot("v2"))
    head.vector = 2;
  else if (lex_.accept_dot("v4"))
    head.vector = 4;
  head.type = expect_type();
  do {
    Variable v = head;
    const Token name = lex_.peek();
    declarator(v);
    SymbolRef& symbol = symbols_[name.text];
    if (symbol.ref == Ref::global && linkage != Linkage::external &&
        module_.variables[symbol.index].linkage == Linkage::external) {
      module_.variables[symbol.index] = std::move(v);  // the definition of what was declared .extern
      continue;
    }
    if (symbol.ref == Ref::global && linkage == Linkage::external) continue;
    if (symbol.ref != Ref::none)
      throw SyntaxError{name.pos, fmt::format("'{}' is declared already", name.text), ""};
    symbol = {Ref::global, static_cast<uint32_t>(out.size())};
    out.push_back(std::move(v));
  } while (lex_.accept(','));
  expect(';');
}

// `name`, `name[4][]`, `name[2] = {1, 2}`.
void Parser::declarator(Variable& v) {
  v.pos = lex_.peek().pos;
  v.name = expect_word("a name");
  int64_t total = int64_t{v.vector} * bytes(v.type);
  while (lex_.accept('[')) {
    if (lex_.accept(']')) {
      v.dims.push_back(Variable::kUnsized);
      continue;
    }
    v.dims.push_back(constant_in(0, kMaxArrayBytes, "an array size"));
    if (v.dims.back() > 0 && total > kMaxArrayBytes / v.dims.back())
      throw SyntaxError{v.pos, fmt::format("'{}' is too large", v.name), ""};
    total *= std::max<int64_t>(v.dims.back(), 1);
    expect(']');
  }
  if (lex_.accept('=')) initialiser(v);
}

std::vector<Variable> Parser::parameters() {
  std::vector<Variable> out;
  expect('(');
  if (lex_.accept(')')) return out;
  do {
    Variable& v = out.emplace_back();
    parameter(v);
  } while (lex_.accept(','));
  expect(')');
  return out;
}

void Parser::parameter(Variable& v) {
  if (lex_.accept_dot("reg")) {
    v.space = Space::reg;
  } else if (lex_.accept_dot("param")) {
    v.space = Space::param;
  } else {
    lex_.fail_expected("'.param' or '.reg'");
  }
  v.attributes = attributes();
  if (lex_.accept_dot("align")) v.align = constant_in(1, 1 << 20, "an alignment");
  v.type = expect_type();
  if (lex_.accept_dot("ptr")) {
    v.is_pointer = true;
    for (std::string_view space : {"global", "shared", "local", "const"})
      if (lex_.accept_dot(space)) v.pointer_space = space;
    if (lex_.accept_dot("align")) v.pointer_align = constant_in(1, 1 << 20, "an alignment");
  }
  declarator(v);
}

void Parser::initialiser(Variable& v) {
  if (lex_.at('{')) {
    initialiser_list(v, 0, 0);
  } else {
    initialiser_value(v, 0);
  }
  int64_t element = bytes(v.type);
  if (!v.dims.empty() && v.dims[0] == Variable::kUnsized) {
    int64_t row = element * v.vector;
    for (size_t d = 1; d < v.dims.size(); ++d) row *= std::max<int64_t>(v.dims[d], 1);
    v.dims[0] = (static_cast<int64_t>(v.initialiser.size()) + row - 1) / row;
  }
  if (static_cast<int64_t>(v.initialiser.size()) > v.size())
    throw SyntaxError{
        v.pos,
        fmt::format("'{}' has {} bytes and {} bytes of initialiser", v.name, v.size(), v.initialiser.size()),
        ""};
}

// `{a, {b, c}, ...}`: the list of dimension `dimension`, whose first element has this flat index.
void Parser::initialiser_list(Variable& v, size_t dimension, int64_t first_element) {
  if (++depth_ > kMaxDepth) lex_.fail("initialiser is nested too deeply");
  // Elements that one entry of this list stands for, when it is itself a list.
  int64_t stride = v.vector;
  for (size_t d = dimension + 1; d < v.dims.size(); ++d) stride *= std::max<int64_t>(v.dims[d], 1);
  if (dimension >= v.dims.size()) stride = 1;
  expect('{');
  int64_t element = first_element;
  if (!lex_.at('}')) {
    do {
      if (lex_.at('{')) {
        initialiser_list(v, dimension + 1, element);
        element += stride;
      } else {
        initialiser_value(v, element++);
      }
    } while (lex_.accept(','));
  }
  expect('}');
  --depth_;
}

void Parser::initialiser_value(Variable& v, int64_t element) {
  int64_t width = bytes(v.type);
  int64_t offset = element * width;
  if (offset + width > kMaxInitialiserBytes) lex_.fail("initialiser is too large");
  if (static_cast<int64_t>(v.initialiser.size()) < offset + width)
    v.initialiser.resize(static_cast<size_t>(offset + width));
  const Token t = lex_.peek();
  auto store = [&](uint64_t value) {
    std::memcpy(v.initialiser.data() + offset, &value, static_cast<size_t>(std::min<int64_t>(width, 8)));
  };
  // A symbol, alone or inside generic(...) or mask(...).
  auto symbol = [&](uint8_t shift) {
    Relocation r;
    r.offset = static_cast<uint32_t>(offset);
    r.size = static_cast<uint8_t>(std::min<int64_t>(width, 8));
    r.shift = shift;
    Token name = lex_.peek();
    std::string_view word = expect_word("a name");
    if (word == "generic" && lex_.accept('(')) {
      r.generic = true;
      name = lex_.peek();
      word = expect_word("a name");
      expect(')');
    }
    const SymbolRef* known = symbols_.find(word);
    if (known == nullptr || known->ref == Ref::none)
      throw SyntaxError{name.pos, fmt::format("'{}' is not declared above", word), ""};
    r.symbol = *known;
    if (lex_.at('+') || lex_.at('-')) r.addend = constant(4);
    v.relocations.push_back(r);
  };
  if (t.kind == TokenKind::word && t.text != "WARP_SZ") return symbol(0);
  if (t.kind == TokenKind::number) {
    Operand number = parse_number(t);
    if (number.kind != OperandKind::immediate) {
      lex_.next();
      return store(element_bits(number, v.type));
    }
  }
  bool negative = lex_.accept('-');
  if (negative && lex_.peek().kind == TokenKind::number) {
    Operand number = parse_number(lex_.peek());
    if (number.kind != OperandKind::immediate) {  // -1.5
      lex_.next();
      uint64_t sign = uint64_t{1} << (v.type == ScalarType::f64 ? 63 : 31);
      return store(element_bits(number, v.type) ^ sign);
    }
  }
  SourcePos pos = lex_.peek().pos;
  int64_t value = negative ? static_cast<int64_t>(0 - static_cast<uint64_t>(constant(7))) : constant();
  if (!lex_.accept('(')) return store(element_bits(Operand(value), v.type));
  // mask(symbol): a run of ones as wide as the element, at a multiple of 8 bits.
  uint64_t mask = static_cast<uint64_t>(value);
  int shift = mask == 0 ? 0 : std::countr_zero(mask);
  uint64_t ones = width >= 8 ? ~uint64_t{0} : (uint64_t{1} << (8 * width)) - 1;
  if (shift % 8 != 0 || mask >> shift != ones)
    throw SyntaxError{pos, fmt::format("mask 0x{:x} does not select {} whole bytes", mask, width), ""};
  symbol(static_cast<uint8_t>(shift));
  expect(')');
}

}  // namespace imbrex::ptx
