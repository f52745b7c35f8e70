// SPDX-License-Identifier: Apache-2.0
// Function bodies: statements, scopes, names and labels. See parser.h.
#include <fmt/format.h>

#include <algorithm>

#include "core/text.h"
#include "ptx/insns.h"
#include "ptx/parser.h"

namespace imbrex::ptx {
namespace {

constexpr int64_t kMaxRange = 1 << 22;  // registers of one declaration

/// What Imbrex does not have that an instruction of this first word is of; "": nothing known.
const char* lacking(std::string_view word) {
  for (const char* of_textures : {"tex", "tld4", "txq"})
    if (word == of_textures) return "textures";
  for (const char* of_surfaces : {"suld", "sust", "sured", "suq"})
    if (word == of_surfaces) return "surfaces";
  return "";
}

}  // namespace

BodyParser::BodyParser(Parser& parser, Function& function) : p_(parser), lex_(parser.lex_), f_(function) {
  scope_marks_.push_back(0);
  auto declare = [&](std::vector<Variable>& params, Ref ref) {
    for (size_t i = 0; i < params.size(); ++i) {
      Variable& v = params[i];
      if (v.space == Space::reg) {
        declare_registers(v.name, v.type, 0, v.pos);
        v.reg = register_number(static_cast<uint32_t>(f_.register_decls.size() - 1), 0);
      } else if (v.name != "_") {
        used_[v.name] = 1;
        define(v.name, {BodyName::symbol, {ref, static_cast<uint32_t>(i)}}, v.pos);
      }
    }
  };
  declare(f_.return_params, Ref::return_param);
  declare(f_.params, Ref::param);
}

void BodyParser::parse() {
  bool finished = false;
  while (!finished) {
    try {
      if (lex_.peek().kind == TokenKind::end) lex_.fail_expected("'}'");
      if (lex_.at('}') && scope_marks_.size() == 1) {
        finished = true;
        finish();
        lex_.next();
      } else {
        statement();
      }
    } catch (const SyntaxError& error) {
      p_.report(error);
      if (lex_.peek().kind == TokenKind::end || p_.diagnostics_.size() >= Parser::kMaxErrors) return;
      if (!finished) lex_.skip_statement();
    }
  }
}

void BodyParser::statement() {
  start_ = lex_.peek().pos;
  if (lex_.peek().kind == TokenKind::dot_word) return directive();
  if (lex_.accept(';')) return;
  if (lex_.at('{')) {
    open_scope();
    lex_.next();
    return;
  }
  if (lex_.at('}')) {
    close_scope();
    lex_.next();
    return;
  }
  if (lex_.accept('@')) {
    bool negated = lex_.accept('!');
    const Token t = lex_.peek();
    std::optional<Reg> guard = find_register(p_.expect_word("a predicate register"));
    if (!guard) unknown_name(t);
    if (f_.type_of(*guard) != ScalarType::pred)
      throw SyntaxError{
          t.pos, fmt::format("guard {} is a .{} register, not a predicate", t.text, name(f_.type_of(*guard))),
          ""};
    Operand o = *guard;
    o.negated = negated;
    return instruction(true, o);
  }
  if (lex_.peek().kind != TokenKind::word) lex_.fail_expected("an instruction, a label or a directive");
  instruction(false, {});
}

void BodyParser::directive() {
  const Token t = lex_.next();
  if (t.text == "reg") return register_declaration();
  if (t.text == "shared") return local_variables(Space::shared);
  if (t.text == "local") return local_variables(Space::local);
  if (t.text == "param") return local_variables(Space::param);
  if (t.text == "const") return local_variables(Space::constant);
  if (t.text == "global") return local_variables(Space::global);
  if (t.text == "loc") return loc_directive();
  if (t.text == "pragma") {
    f_.body_pragmas.push_back({p_.expect_string(), static_cast<uint32_t>(f_.body.size())});
    return p_.expect(';');
  }
  const std::vector<std::string> known = {"reg",   "shared", "local", "param",
                                          "const", "global", "loc",   "pragma"};
  std::string nearest = nearest_word(t.text, known);
  throw SyntaxError{t.pos, fmt::format("unknown directive '.{}'", t.text),
                    nearest.empty() ? "" : fmt::format("did you mean '.{}'?", nearest)};
}

void BodyParser::register_declaration() {
  if (lex_.at_dot("v2") || lex_.at_dot("v4"))
    lex_.fail("vector registers are not supported", "declare the components one by one");
  ScalarType type = p_.expect_type();
  do {
    const Token t = lex_.peek();
    p_.expect_word("the name of a register");
    int64_t count = 0;
    if (lex_.accept('<')) {
      // A plain number: in a constant expression the '>' that follows would be a shift.
      const Token number = lex_.next();
      if (number.kind == TokenKind::number) count = parse_number(number).value;
      if (count < 1 || count > kMaxRange)
        throw SyntaxError{number.pos, fmt::format("expected a number of registers from 1 to {}", kMaxRange),
                          ""};
      p_.expect('>');
    }
    declare_registers(t.text, type, count, t.pos);
  } while (lex_.accept(','));
  p_.expect(';');
}

// count 0: a single register of that name.
void BodyParser::declare_registers(std::string_view name, ScalarType type, int64_t count, SourcePos pos) {
  uint32_t decl = static_cast<uint32_t>(f_.register_decls.size());
  bool is_range = count > 0;
  define(name, {is_range ? BodyName::register_range : BodyName::single_register, {Ref::reg, decl}}, pos);
  f_.register_decls.push_back(
      {unique(name, is_range), type, is_range, static_cast<uint32_t>(is_range ? count : 1)});
  ids_.emplace_back();
}

void BodyParser::local_variables(Space space) {
  Variable head;
  head.space = space;
  head.attributes = p_.attributes();
  if (lex_.accept_dot("align")) head.align = p_.constant_in(1, 1 << 20, "an alignment");
  if (lex_.accept_dot("v2"))
    head.vector = 2;
  else if (lex_.accept_dot("v4"))
    head.vector = 4;
  head.type = p_.expect_type();
  do {
    Variable v = head;
    const Token t = lex_.peek();
    p_.declarator(v);
    define(t.text, {BodyName::symbol, {Ref::local, static_cast<uint32_t>(f_.variables.size())}}, t.pos);
    v.name = unique(t.text);
    f_.variables.push_back(std::move(v));
  } while (lex_.accept(','));
  p_.expect(';');
}

// .loc file line column [, function_name label [+ offset], inlined_at file line column]; no ';' follows.
void BodyParser::loc_directive() {
  auto number = [&] { return static_cast<uint32_t>(p_.constant_in(0, 0xffffffff, "a number")); };
  Loc loc;
  loc.file = number();
  loc.line = number();
  loc.column = number();
  while (lex_.accept(',')) {
    std::string_view what = p_.expect_word("'function_name' or 'inlined_at'");
    if (what == "function_name") {
      loc.function_name = p_.expect_word("a label");
      if (lex_.accept('+')) loc.function_name_offset = number();
    } else if (what == "inlined_at") {
      loc.inlined_file = number();
      loc.inlined_line = number();
      loc.inlined_column = number();
    } else {
      lex_.fail("expected 'function_name' or 'inlined_at' in .loc");
    }
  }
  if (f_.locs.empty() || !(f_.locs.back() == loc)) f_.locs.push_back(std::move(loc));
  loc_ = static_cast<uint32_t>(f_.locs.size() - 1);
}

void BodyParser::instruction(bool guarded, Operand guard) {
  if (lex_.peek().kind != TokenKind::word) lex_.fail_expected("an instruction");
  const Token first = lex_.next();
  if (!guarded && lex_.accept(':')) return labelled(first);

  Instruction i;
  i.pos = start_;
  i.loc = loc_;
  if (guarded) {
    i.guard = guard.reg();
    i.guard_negated = guard.negated;
  }
  constexpr size_t kMaxWords = 28;
  Token words[kMaxWords];
  size_t count = 0;
  bool contiguous = true;
  const char* end = first.text.data() + first.text.size();
  while (lex_.peek().kind == TokenKind::dot_word) {
    if (count == kMaxWords) lex_.fail("too many words in one instruction");
    words[count] = lex_.next();
    contiguous &= words[count].text.data() == end + 1;
    end = words[count].text.data() + words[count].text.size();
    ++count;
  }
  std::string respelled;
  std::string_view spelled = count == 0 ? first.text : Lexer::joined(first, words[count - 1]);
  if (!contiguous) {
    respelled = first.text;
    for (size_t w = 0; w < count; ++w) respelled.append(".").append(words[w].text);
    spelled = respelled;
  }
  std::optional<MnemonicMatch> match = find_mnemonic(spelled);
  if (Token* const sync = std::find_if(words, words + count, [](const Token& t) { return t.text == "sync"; });
      !match && sync != words + count) {
    // The assembler takes words in any order, and CUB writes vote.ballot.sync.
    std::string in_order = fmt::format("{}.sync", first.text);
    for (const Token* t = words; t != words + count; ++t)
      if (t != sync) in_order.append(".").append(t->text);
    match = find_mnemonic(in_order);
    if (match) {
      std::rotate(words, sync, sync + 1);
      respelled = std::move(in_order);
      spelled = respelled;
    }
  }
  if (!match) {
    std::string nearest = nearest_mnemonic(spelled);
    throw SyntaxError{first.pos, fmt::format("unknown instruction '{}'", spelled.substr(0, 80)),
                      nearest.empty() ? "" : fmt::format("did you mean '{}'?", nearest), lacking(first.text)};
  }
  i.op = match->op;
  std::string_view mnemonic = spelled.substr(0, match->length);
  size_t word = static_cast<size_t>(std::count(mnemonic.begin(), mnemonic.end(), '.'));
  for (; word < count; ++word) {
    const Token& t = words[word];
    std::optional<Suffix> suffix = find_suffix(t.text);
    if (!suffix) {
      std::string nearest = nearest_suffix(t.text);
      throw SyntaxError{t.pos, fmt::format("unknown modifier '.{}' of {}", t.text.substr(0, 60), name(i.op)),
                        nearest.empty() ? "" : fmt::format("did you mean '.{}'?", nearest)};
    }
    if (i.suffix_count == Instruction::kMaxSuffixes)
      throw SyntaxError{
          t.pos, fmt::format("more than {} modifiers of {}", Instruction::kMaxSuffixes, name(i.op)), ""};
    i.suffix_array[i.suffix_count++] = *suffix;
  }
  operands(i);
  p_.expect(';');
  f_.body.push_back(i);
}

void BodyParser::labelled(const Token& label) {
  if (lex_.accept_dot("branchtargets")) return target_list(label, false);
  if (lex_.accept_dot("calltargets")) return target_list(label, true);
  if (lex_.accept_dot("callprototype")) return prototype(label);
  uint32_t scope = static_cast<uint32_t>(scope_marks_.size());
  BodyName* known = names_.find(label.text);
  uint32_t id = static_cast<uint32_t>(f_.labels.size());
  if (known != nullptr && known->kind == BodyName::pending_label && known->scope == scope) {
    id = known->ref.index;
    known->kind = BodyName::symbol;
  } else {
    define(label.text, {BodyName::symbol, {Ref::label, id}}, label.pos);
    f_.labels.emplace_back();
    label_pos_.push_back(label.pos);
    label_alias_.push_back(id);
  }
  f_.labels[id] = {unique(label.text), static_cast<uint32_t>(f_.body.size())};
}

void BodyParser::target_list(const Token& list, bool is_call) {
  TargetList out;
  out.is_call = is_call;
  out.position = static_cast<uint32_t>(f_.body.size());
  do {
    const Token t = lex_.peek();
    p_.expect_word(is_call ? "the name of a function" : "a label");
    if (is_call) {
      const SymbolRef* symbol = p_.symbols_.find(t.text);
      if (symbol == nullptr || symbol->ref != Ref::function) unknown_name(t);
      out.targets.push_back(symbol->index);
    } else {
      out.targets.push_back(label_reference(t));
    }
  } while (lex_.accept(','));
  p_.expect(';');
  define(list.text, {BodyName::symbol, {Ref::target_list, static_cast<uint32_t>(f_.target_lists.size())}},
         list.pos);
  out.name = unique(list.text);
  f_.target_lists.push_back(std::move(out));
}

// name: .callprototype (ret) _ (params) [.noreturn];
void BodyParser::prototype(const Token& label) {
  Prototype out;
  out.position = static_cast<uint32_t>(f_.body.size());
  if (lex_.at('(')) out.return_params = p_.parameters();
  if (p_.expect_word("'_'") != "_") lex_.fail("the function of a .callprototype is written '_'");
  if (lex_.at('(')) out.params = p_.parameters();
  out.noreturn = lex_.accept_dot("noreturn");
  p_.expect(';');
  define(label.text, {BodyName::symbol, {Ref::prototype, static_cast<uint32_t>(f_.prototypes.size())}},
         label.pos);
  out.name = unique(label.text);
  f_.prototypes.push_back(std::move(out));
}

void BodyParser::open_scope() { scope_marks_.push_back(shadowed_.size()); }

// References to lists that stand further down than what refers to them.
void BodyParser::resolve_lists() {
  std::erase_if(list_references_, [&](const ListReference& r) {
    const BodyName* list = names_.find(r.name);
    if (list == nullptr || !is_list(*list)) return false;
    f_.operands[r.operand].ref = list->ref.ref;
    f_.operands[r.operand].id = list->ref.index;
    return true;
  });
}

// Gives every name its outer meaning back. A label still waited for is now waited for in the outer scope.
void BodyParser::close_scope() {
  resolve_lists();
  size_t mark = scope_marks_.back();
  std::vector<std::pair<std::string_view, uint32_t>> waiting;
  while (shadowed_.size() > mark) {
    BodyName& current = (shadowed_.back().is_range ? ranges_ : names_)[shadowed_.back().name];
    if (current.kind == BodyName::pending_label)
      waiting.emplace_back(shadowed_.back().name, current.ref.index);
    current = shadowed_.back().meaning;
    shadowed_.pop_back();
  }
  scope_marks_.pop_back();
  uint32_t scope = static_cast<uint32_t>(scope_marks_.size());
  for (auto [label, id] : waiting) {
    const BodyName& outer = names_[label];
    bool is_label = outer.kind == BodyName::pending_label ||
                    (outer.kind == BodyName::symbol && outer.ref.ref == Ref::label);
    if (is_label && outer.scope == scope) {
      label_alias_[id] = outer.ref.index;
    } else {
      define(label, {BodyName::pending_label, {Ref::label, id}}, label_pos_[id]);
    }
  }
}

// Labels that were referred to before it was known which they are get their final numbers.
void BodyParser::finish() {
  for (const Shadowed& s : shadowed_) {
    if (s.is_range) continue;
    const BodyName& meaning = names_[s.name];
    if (meaning.kind == BodyName::pending_label)
      p_.report({label_pos_[meaning.ref.index], fmt::format("label '{}' is not defined", s.name), ""});
  }
  resolve_lists();
  for (const ListReference& r : list_references_)
    p_.report(
        {r.pos,
         fmt::format("'{}' is no .branchtargets, .calltargets or .callprototype of this function", r.name),
         ""});
  bool merged = false;
  for (uint32_t id = 0; id < label_alias_.size(); ++id) merged |= label_alias_[id] != id;
  if (!merged || !p_.diagnostics_.empty()) return;
  std::vector<uint32_t> final_id(f_.labels.size());
  std::vector<Label> kept;
  for (uint32_t id = 0; id < f_.labels.size(); ++id)
    if (label_alias_[id] == id) {
      final_id[id] = static_cast<uint32_t>(kept.size());
      kept.push_back(std::move(f_.labels[id]));
    }
  auto resolve = [&](uint32_t id) {
    while (label_alias_[id] != id) id = label_alias_[id];
    return final_id[id];
  };
  for (Operand& o : f_.operands)
    if (o.kind == OperandKind::symbol && o.ref == Ref::label) o.id = resolve(o.id);
  for (TargetList& list : f_.target_lists)
    if (!list.is_call)
      for (uint32_t& target : list.targets) target = resolve(target);
  f_.labels = std::move(kept);
}

void BodyParser::define(std::string_view name, BodyName meaning, SourcePos pos) {
  meaning.scope = static_cast<uint32_t>(scope_marks_.size());
  bool is_range = meaning.kind == BodyName::register_range;
  BodyName& known = (is_range ? ranges_ : names_)[name];
  if (known.kind != BodyName::unknown && known.scope == meaning.scope)
    throw SyntaxError{pos, fmt::format("'{}' is declared twice in one scope", name), ""};
  shadowed_.push_back({name, is_range, known});
  known = meaning;
}

std::string BodyParser::unique(std::string_view name, bool is_range) {
  // A range's numbers must not run into the number of the copy, hence its '_'.
  std::string_view mark = is_range ? "<" : "";
  std::string key = fmt::format("{}{}", name, mark);
  uint32_t* uses = used_.find(key);
  if (uses == nullptr) {
    used_[renamed_.emplace_back(std::move(key))] = 1;
    return std::string(name);
  }
  for (;;) {
    std::string next = fmt::format("{}${}{}", name, ++*uses, is_range ? "_" : "");
    key = fmt::format("{}{}", next, mark);
    if (used_.find(key) != nullptr) continue;
    used_[renamed_.emplace_back(std::move(key))] = 1;
    return next;
  }
}

std::optional<Reg> BodyParser::find_register(std::string_view name) {
  // "%r12" is number 12 of range "%r"; "%r1" may itself be a range. No number has a leading zero.
  size_t digits = 0;
  while (digits < name.size() && name[name.size() - 1 - digits] >= '0' &&
         name[name.size() - 1 - digits] <= '9')
    ++digits;
  for (size_t n = std::min<size_t>(digits, 7); n > 0; --n) {
    std::string_view number = name.substr(name.size() - n);
    if (n > 1 && number[0] == '0') continue;
    const BodyName* range = ranges_.find(name.substr(0, name.size() - n));
    if (range == nullptr || range->kind == BodyName::unknown) continue;
    uint32_t value = 0;
    for (char c : number) value = value * 10 + static_cast<uint32_t>(c - '0');
    if (value < f_.register_decls[range->ref.index].count) return register_number(range->ref.index, value);
  }
  const BodyName* single = names_.find(name);
  if (single == nullptr || single->kind != BodyName::single_register) return std::nullopt;
  return register_number(single->ref.index, 0);
}

Reg BodyParser::register_number(uint32_t decl, uint32_t number) {
  std::vector<uint32_t>& ids = ids_[decl];
  if (number >= ids.size())
    ids.resize(std::max<size_t>(number + 1, std::min<size_t>(ids.size() * 2, f_.register_decls[decl].count)),
               Reg::kNone);
  if (ids[number] == Reg::kNone) {
    ids[number] = static_cast<uint32_t>(f_.registers.size());
    f_.registers.push_back({decl, number, f_.register_decls[decl].type});
  }
  return {ids[number]};
}

// The label as the current scope will know it: one defined here, or one still to come.
uint32_t BodyParser::label_reference(const Token& token) {
  uint32_t scope = static_cast<uint32_t>(scope_marks_.size());
  const BodyName* known = names_.find(token.text);
  if (known != nullptr && known->scope == scope) {
    bool is_label = known->kind == BodyName::pending_label ||
                    (known->kind == BodyName::symbol && known->ref.ref == Ref::label);
    if (is_label) return known->ref.index;
    if (known->kind != BodyName::unknown)
      throw SyntaxError{token.pos, fmt::format("'{}' is no label", token.text), ""};
  }
  uint32_t id = static_cast<uint32_t>(f_.labels.size());
  define(token.text, {BodyName::pending_label, {Ref::label, id}}, token.pos);
  f_.labels.emplace_back();
  label_pos_.push_back(token.pos);
  label_alias_.push_back(id);
  return id;
}

void BodyParser::unknown_name(const Token& token) {
  std::vector<std::string> candidates;
  names_.for_each([&](std::string_view name, const BodyName& meaning) {
    if (meaning.kind == BodyName::symbol || meaning.kind == BodyName::single_register)
      candidates.emplace_back(name);
  });
  p_.symbols_.for_each([&](std::string_view name, const SymbolRef&) { candidates.emplace_back(name); });
  std::sort(candidates.begin(), candidates.end());  // whatever the hash table's order
  std::string nearest = nearest_word(token.text, candidates);
  bool is_register = !token.text.empty() && token.text[0] == '%';
  throw SyntaxError{
      token.pos,
      fmt::format("{} '{}' is not declared", is_register ? "register" : "name", token.text.substr(0, 80)),
      nearest.empty() ? "" : fmt::format("did you mean '{}'?", nearest)};
}

}  // namespace imbrex::ptx
