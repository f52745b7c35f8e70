// SPDX-License-Identifier: Apache-2.0
// The recursive-descent parser behind read(). Internal: use reader.h.
//
// Parser reads the module level and declarations (reader.cpp, declarations.cpp); BodyParser reads one
// function body (body.cpp, operands.cpp), where scopes are flattened.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "imbrex/core/error.h"
#include "ptx/lexer.h"
#include "ptx/ptx.h"
#include "ptx/reader.h"
#include "ptx/string_table.h"

namespace imbrex::ptx {

/// A number token's value: an integer or a float immediate. Fails on text that is not a number.
Operand parse_number(const Token& token);

class Parser {
 public:
  /// `unread`: where errors in bodies go; null: among the others.
  Parser(std::string_view text, std::string_view source_name, UnreadBodies* unread = nullptr);
  Module parse();

 private:
  friend class BodyParser;

  // Module level (reader.cpp).
  void header();
  void statement();
  void file_directive();
  void section();
  void alias();
  void function(Linkage linkage, bool is_entry);
  void function_directives(Function& f);
  uint32_t declare(Function&& f, const Token& name);

  // Declarations (declarations.cpp).
  Linkage accept_linkage();
  /// Variables after their state space word, up to and with ';'.
  void variables(Space space, Linkage linkage, std::vector<Variable>& out);
  void declarator(Variable& v);
  std::vector<Variable> parameters();
  void parameter(Variable& v);
  void initialiser(Variable& v);
  void initialiser_list(Variable& v, size_t dimension, int64_t first_element);
  void initialiser_value(Variable& v, int64_t element);
  std::vector<std::string> attributes();
  std::array<int, 3> triple();

  // Pieces.
  void expect(char punctuation);
  std::string_view expect_word(std::string_view what);
  std::string expect_string();
  ScalarType expect_type();
  /// A constant integer expression.
  int64_t constant() { return constant(0); }
  int64_t constant(int precedence);
  int64_t constant_in(int64_t low, int64_t high, std::string_view what);
  void report(const SyntaxError& error);
  [[noreturn]] void throw_errors();

  static constexpr size_t kMaxErrors = 20;
  static constexpr int kMaxDepth = 64;  // of nested scopes, expressions and initialisers

  std::string_view text_;
  const char* source_name_;
  Module module_;
  StringTable<SymbolRef> symbols_;  // functions and variables of the module; keys are in the text
  std::vector<Diagnostic> diagnostics_;
  std::vector<std::string> lacking_;  // of each diagnostic: SyntaxError::lacking
  UnreadBodies* unread_;
  int depth_ = 0;
  Lexer lex_;
};

/// What a name means inside a body.
struct BodyName {
  enum Kind : uint8_t { unknown, symbol, single_register, register_range, pending_label } kind = unknown;
  SymbolRef ref;  ///< symbol; index = register declaration for the register kinds
  uint32_t scope = 0;
};

class BodyParser {
 public:
  BodyParser(Parser& parser, Function& function);
  /// Reads from after '{' to its '}'.
  void parse();

 private:
  // Statements (body.cpp).
  void statement();
  void directive();
  void register_declaration();
  void declare_registers(std::string_view name, ScalarType type, int64_t count, SourcePos pos);
  void local_variables(Space space);
  void loc_directive();
  void labelled(const Token& name);
  void target_list(const Token& name, bool is_call);
  void prototype(const Token& name);
  void instruction(bool guarded, Operand guard);
  void open_scope();
  void close_scope();
  void resolve_lists();
  void finish();

  // Operands (operands.cpp).
  void operands(Instruction& i);
  void call_operands();
  Operand operand();
  Operand simple_operand();
  Operand bracketed();
  Operand vector();
  Operand tuple();
  Operand named(const Token& token);
  Operand label_operand();
  Operand list_operand();
  Operand pooled(OperandKind kind, const Operand* elements, size_t count);
  Operand immediate();

  // Names (body.cpp).
  void define(std::string_view name, BodyName meaning, SourcePos pos);
  static bool is_list(const BodyName& name) {
    return name.kind == BodyName::symbol &&
           (name.ref.ref == Ref::target_list || name.ref.ref == Ref::prototype);
  }
  std::optional<Reg> find_register(std::string_view name);
  Reg register_number(uint32_t decl, uint32_t number);
  /// The name itself, or with a suffix when the function has it already.
  std::string unique(std::string_view name, bool is_range = false);
  uint32_t label_reference(const Token& token);
  [[noreturn]] void unknown_name(const Token& token);

  struct Shadowed {
    std::string_view name;
    bool is_range;
    BodyName meaning;
  };
  struct ListReference {
    std::string_view name;
    uint32_t operand;
    SourcePos pos;
  };

  Parser& p_;
  Lexer& lex_;
  Function& f_;
  StringTable<BodyName> names_;
  StringTable<BodyName> ranges_;            // of registers, by prefix: `r<4>` and `r` may both be declared
  StringTable<uint32_t> used_;              // names the flattened function has, and how often each was wanted
  std::deque<std::string> renamed_;         // storage for names made here
  std::vector<std::vector<uint32_t>> ids_;  // per register declaration: id by number, or Reg::kNone
  std::vector<size_t> scope_marks_;         // into shadowed_, one per open scope
  std::vector<Shadowed> shadowed_;
  std::vector<SourcePos> label_pos_;   // where each label was first seen
  std::vector<uint32_t> label_alias_;  // label id -> the label it turned out to be
  std::vector<ListReference> list_references_;
  std::vector<Operand> scratch_;
  uint32_t loc_ = Instruction::kNone;
  SourcePos start_;
};

}  // namespace imbrex::ptx
