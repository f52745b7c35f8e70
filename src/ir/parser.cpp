// SPDX-License-Identifier: Apache-2.0
// Reads what printer.cpp writes. Checks words, names and attribute kinds; verify() checks the rest.
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <unordered_map>

#include <fmt/format.h>

#include "core/text.h"
#include "imbrex/core/error.h"
#include "ir/ir.h"
#include "ir/lexer.h"

namespace imbrex::ir {
namespace {

constexpr int kMaxNesting = 200;  // regions inside regions; beyond it the text is not a kernel

std::string describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kEnd:
      return "the end of the text";
    case TokenKind::kValue:
      return "'%" + token.text + "'";
    case TokenKind::kString:
      return "a string";
    default:
      return "'" + token.text + "'";
  }
}

class Parser {
 public:
  Parser(std::string_view text, std::string_view file_name) : lexer_(text, file_name) {}

  std::unique_ptr<Function> run() {
    header();
    expect('{');
    if (lexer_.peek().is_word("host")) {
      lexer_.next();
      expect('{');
      host_block();
    }
    block(function_->body, 0);
    if (lexer_.peek().kind != TokenKind::kEnd) fail("text after the kernel: " + describe(lexer_.peek()));
    return std::move(function_);
  }

 private:
  // --- small pieces ---

  [[noreturn]] void fail(const std::string& message, const std::string& help = "") const {
    lexer_.fail(lexer_.peek().offset, message, help);
  }
  [[noreturn]] void fail_unknown(const Token& token, std::string_view what,
                                 const std::vector<std::string>& known) const {
    const std::string near = nearest_word(token.text, known);
    lexer_.fail(token.offset, fmt::format("unknown {} '{}'", what, token.text),
                near.empty() ? "" : fmt::format("did you mean '{}'?", near));
  }
  bool accept(char punct) {
    if (!lexer_.peek().is(punct)) return false;
    lexer_.next();
    return true;
  }
  void expect(char punct) {
    if (!accept(punct)) fail(fmt::format("expected '{}', found {}", punct, describe(lexer_.peek())));
  }
  Token expect(TokenKind kind, std::string_view what) {
    if (lexer_.peek().kind != kind) fail(fmt::format("expected {}, found {}", what, describe(lexer_.peek())));
    return lexer_.next();
  }

  int64_t integer() {
    const Token token = expect(TokenKind::kNumber, "an integer");
    int64_t value = 0;
    const char* end = token.text.data() + token.text.size();
    const auto [stop, error] = std::from_chars(token.text.data(), end, value);
    if (stop != end || error != std::errc())
      lexer_.fail(token.offset, "expected a 64-bit integer, found '" + token.text + "'");
    return value;
  }
  int64_t integer(int64_t low, int64_t high) {
    const size_t offset = lexer_.peek().offset;
    const int64_t value = integer();
    if (value < low || value > high)
      lexer_.fail(offset, fmt::format("expected a number from {} to {}, found {}", low, high, value));
    return value;
  }
  double floating() {
    const Token token = lexer_.next();
    if (token.is_word("nan")) return std::numeric_limits<double>::quiet_NaN();
    if (token.is_word("-nan")) return -std::numeric_limits<double>::quiet_NaN();
    if (token.is_word("inf")) return HUGE_VAL;
    if (token.is_word("-inf")) return -HUGE_VAL;
    char* end = nullptr;
    const double value = std::strtod(token.text.c_str(), &end);
    if (token.kind != TokenKind::kNumber || *end != '\0')
      lexer_.fail(token.offset, "expected a number, found " + describe(token));
    return value;
  }
  std::vector<int64_t> integers(bool dynamic_allowed) {
    std::vector<int64_t> out;
    expect('[');
    while (!accept(']')) {
      if (!out.empty()) expect(',');
      if (dynamic_allowed && accept('?'))
        out.push_back(kDynamic);
      else
        out.push_back(dynamic_allowed ? integer(0, int64_t{1} << 40) : integer());
    }
    return out;
  }
  DataType dtype() {
    const Token token = expect(TokenKind::kWord, "an element type");
    if (auto found = DataType::from_name(token.text)) return *found;
    fail_unknown(token, "element type", dtype_names());
  }
  static std::vector<std::string> dtype_names() {
    std::vector<std::string> names;
    for (const auto& facts : detail::kDataTypeFacts) names.emplace_back(facts.name);
    return names;
  }
  layout::Layout layout() {
    if (!lexer_.peek().is('[')) fail("expected a layout, found " + describe(lexer_.peek()));
    const size_t offset = lexer_.peek().offset;
    const std::string_view text = lexer_.bracketed();
    try {
      return layout::Layout::parse(text);
    } catch (const Error& error) {
      lexer_.fail(offset, "layout: " + error.diagnostics().front().message);
    }
  }
  SourceLocation location() {  // after '@'
    SourceLocation where;
    if (lexer_.peek().kind == TokenKind::kString) {
      where.file = intern(lexer_.next().text);
      expect(':');
    } else if (function_->where.is_known()) {
      where.file = function_->where.file;
    } else {
      fail("a line without a file", "name the kernel's file by `from \"file\":line` in its first line");
    }
    where.line = static_cast<uint32_t>(integer(1, std::numeric_limits<uint32_t>::max()));
    return where;
  }

  // --- types ---

  Type type() {
    static const std::unordered_map<std::string, TypeKind> tensor_kinds = {
        {"var", TypeKind::kVariable},  {"register", TypeKind::kRegister}, {"shared", TypeKind::kShared},
        {"global", TypeKind::kGlobal}, {"tmem", TypeKind::kTensorMemory}, {"ptr", TypeKind::kPointer},
    };
    const Token token = expect(TokenKind::kWord, "a type");
    if (auto scalar = DataType::from_name(token.text)) return Type::scalar(*scalar);
    if (token.text == "map") return {TypeKind::kTensorMap, uint8, {}, {}};
    if (token.text == "barrier") {
      Type out{TypeKind::kBarrier, uint64, {}, {}};
      if (lexer_.peek().is('[')) out.shape = integers(true);
      return out;
    }
    const auto found = tensor_kinds.find(token.text);
    if (found == tensor_kinds.end()) {
      std::vector<std::string> known = dtype_names();
      for (const auto& [word, kind] : tensor_kinds) known.push_back(word);
      known.insert(known.end(), {"barrier", "map"});
      fail_unknown(token, "type", known);
    }
    Type out;
    out.kind = found->second;
    expect('<');
    out.dtype = dtype();
    if (out.kind == TypeKind::kPointer || (out.kind == TypeKind::kVariable && lexer_.peek().is('>'))) {
      expect('>');
      return out;
    }
    expect(',');
    out.shape = integers(true);
    if (accept(',')) out.layout = layout();
    expect('>');
    return out;
  }

  // --- values ---

  Value* define() {  // %name: type
    const Token token = expect(TokenKind::kValue, "a value");
    expect(':');
    const bool numbered = token.text.find_first_not_of("0123456789") == std::string::npos;
    if (values_.count(token.text)) lexer_.fail(token.offset, "%" + token.text + " is defined twice");
    if (!numbered && std::isdigit(static_cast<unsigned char>(token.text[0])))
      lexer_.fail(token.offset, "a name starts with a letter: %" + token.text);
    Value* value = function_->new_value(type(), numbered ? "" : token.text);
    if (numbered) {
      int id = 0;
      const char* end = token.text.data() + token.text.size();
      if (std::from_chars(token.text.data(), end, id).ec != std::errc() ||
          id == std::numeric_limits<int>::max())
        lexer_.fail(token.offset, "value number out of range: %" + token.text);
      if (std::to_string(id) != token.text) lexer_.fail(token.offset, "a value number has no leading zeros");
      function_->set_id(*value, id);
    }
    values_[token.text] = value;
    return value;
  }
  Value* use() {
    const Token token = expect(TokenKind::kValue, "a value");
    const auto found = values_.find(token.text);
    if (found != values_.end()) return found->second;
    std::vector<std::string> known;
    for (const auto& [name, value] : values_) known.push_back(name);
    fail_unknown(token, "value", known);
  }

  // --- ops ---

  void attributes(Op& op) {  // after '{'
    while (!accept('}')) {
      if (!op.attrs.empty()) expect(',');
      const Token name = expect(TokenKind::kWord, "an attribute");
      const AttrSpec* spec = nullptr;
      std::vector<std::string> known;
      for (const AttrSpec& candidate : op.info().attrs) {
        known.emplace_back(candidate.name);
        if (candidate.name == name.text) spec = &candidate;
      }
      if (!spec) fail_unknown(name, fmt::format("attribute of {}", op.info().mnemonic), known);
      if (op.attr(spec->name)) lexer_.fail(name.offset, "attribute '" + name.text + "' is given twice");
      expect('=');
      op.set_attr(spec->name, attribute(spec->kind));
    }
  }
  AttrValue attribute(AttrKind kind) {
    switch (kind) {
      case AttrKind::kInt:
        return integer();
      case AttrKind::kInts:
        return integers(false);
      case AttrKind::kFloat:
        return floating();
      case AttrKind::kString:
        return expect(TokenKind::kString, "a string").text;
      case AttrKind::kDType:
        return dtype();
      case AttrKind::kLayout:
        return layout();
      case AttrKind::kBool: {
        const Token token = expect(TokenKind::kWord, "true or false");
        if (token.text != "true" && token.text != "false")
          lexer_.fail(token.offset, "expected true or false, found '" + token.text + "'");
        return token.text == "true";
      }
    }
    throw InternalError("attribute kind");
  }

  Op* op(Block& parent, int depth) {
    std::vector<Value*> results;
    if (lexer_.peek().kind == TokenKind::kValue) {
      do results.push_back(define());
      while (accept(','));
      expect('=');
    }
    const Token mnemonic = expect(TokenKind::kWord, "an op");
    const auto code = opcode_from_mnemonic(mnemonic.text);
    if (!code) {
      std::vector<std::string> known;
      for (int i = 0; i < static_cast<int>(Opcode::kCount); ++i)
        known.emplace_back(info(static_cast<Opcode>(i)).mnemonic);
      fail_unknown(mnemonic, "op", known);
    }
    Op* op = function_->new_op(*code);
    op->parent = &parent;
    op->results = std::move(results);
    for (Value* value : op->results) value->def = op;
    if (!op->regions.empty() && lexer_.peek().kind == TokenKind::kValue && lexer_.peek_second().is(':')) {
      do {
        Value* argument = define();
        argument->owner = op->regions[0].get();
        op->regions[0]->args.push_back(argument);
      } while (accept(','));
      if (!lexer_.next().is_word("in")) fail("expected 'in' after the region's arguments");
    }
    // The next op's results may follow on the next line: they are told apart by the ':' after the name.
    if (lexer_.peek().kind == TokenKind::kValue && !lexer_.peek_second().is(':')) {
      do op->operands.push_back(use());
      while (accept(','));
    }
    if (lexer_.peek().is('{') && (op->regions.empty() || starts_attributes())) {
      lexer_.next();
      attributes(*op);
    }
    if (accept('@')) op->where = location();
    for (size_t i = 0; i < op->regions.size(); ++i) {
      if (i > 0) {
        if (!lexer_.peek().is_word("else")) break;
        lexer_.next();
      }
      expect('{');
      block(*op->regions[i], depth + 1);
    }
    return op;
  }
  /// At '{' after an op with regions: attributes look like `{name =` and ops never do.
  bool starts_attributes() {
    Lexer ahead = lexer_;
    ahead.next();
    return ahead.peek().kind == TokenKind::kWord && ahead.peek_second().is('=');
  }

  void block(Block& block, int depth) {  // after '{'
    if (depth > kMaxNesting) fail(fmt::format("regions nest deeper than {}", kMaxNesting));
    while (!accept('}')) block.ops.push_back(op(block, depth));
  }

  void host_block() {  // after '{'
    Function& f = *function_;
    while (!accept('}')) {
      if (!lexer_.peek().is_word("grid")) {
        f.host.ops.push_back(op(f.host, 1));
        continue;
      }
      if (!f.grid.empty()) fail("the grid is given twice");
      lexer_.next();
      do f.grid.push_back(use());
      while (accept(','));
    }
  }

  void header() {
    Function& f = *function_;
    if (!lexer_.next().is_word("kernel")) lexer_.fail(0, "expected 'kernel'");
    const bool is_quoted = lexer_.peek().kind == TokenKind::kString;
    f.name = is_quoted ? lexer_.next().text : expect(TokenKind::kWord, "the kernel's name").text;
    expect('(');
    while (!accept(')')) {
      if (!f.params.empty()) expect(',');
      f.params.push_back(define());
    }
    while (!lexer_.peek().is('{')) header_word();
  }
  void header_word() {
    constexpr int64_t kBig = int64_t{1} << 31;
    Function& f = *function_;
    const Token word = expect(TokenKind::kWord, "a property of the kernel or '{'");
    if (word.text == "target") {
      f.target = expect(TokenKind::kWord, "a target").text;
    } else if (word.text == "warps") {
      f.warps = static_cast<int>(integer(1, 1 << 20));
    } else if (word.text == "cluster") {
      f.cluster = integers(false);
    } else if (word.text == "max_registers") {
      f.max_registers = integer(0, kBig);
    } else if (word.text == "shared") {
      f.shared_bytes = integer(0, kBig);
    } else if (word.text == "tensor_memory") {
      f.tensor_memory_columns = integer(0, kBig);
    } else if (word.text == "from") {
      f.where.file = intern(expect(TokenKind::kString, "a file name").text);
      expect(':');
      f.where.line = static_cast<uint32_t>(integer(1, std::numeric_limits<uint32_t>::max()));
    } else {
      fail_unknown(word, "property of a kernel",
                   {"target", "warps", "cluster", "max_registers", "shared", "tensor_memory", "from"});
    }
  }

  Lexer lexer_;
  std::unique_ptr<Function> function_ = std::make_unique<Function>();
  std::unordered_map<std::string, Value*> values_;
};

}  // namespace

std::unique_ptr<Function> parse(std::string_view text, std::string_view file_name) {
  return Parser(text, file_name).run();
}

}  // namespace imbrex::ir
