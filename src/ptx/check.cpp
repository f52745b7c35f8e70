// SPDX-License-Identifier: Apache-2.0
// The rows of insns.def are parsed once into sets and slots; instructions are then matched against them.
#include "ptx/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "core/text.h"
#include "imbrex/core/error.h"
#include "ptx/insns.h"
#include "ptx/writer.h"

namespace imbrex::ptx {
namespace {

// One way to fill an operand slot.
struct Choice {
  char kind = 's';
  enum Rule : uint8_t { any, indexed, doubled, fixed } rule = any;
  int index = 0;
  ScalarType type = ScalarType::b32;
};

struct Slot {
  std::vector<Choice> choices;
  bool optional = false;
};

// Words of which at most one is written.
struct ModifierGroup {
  std::vector<Mod> mods;
  bool has_shape = false;
  bool required = false;
  std::string_view spelled;
};

struct TypeSlot {
  uint64_t allowed = 0;  // bit = ScalarType
  bool optional = false;
  std::string_view spelled;
};

struct Form {
  std::vector<Slot> slots;
  std::vector<ModifierGroup> groups;
  std::vector<TypeSlot> types;
};

template <class F>
void for_each_part(std::string_view text, char separator, F&& f) {
  while (!text.empty()) {
    size_t end = std::min(text.find(separator), text.size());
    if (end > 0) f(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

bool take_last(std::string_view& text, char mark) {
  if (text.empty() || text.back() != mark) return false;
  text.remove_suffix(1);
  return true;
}

[[noreturn]] void bad_row(const InsnFacts& row, std::string_view word) {
  throw InternalError(fmt::format("insns.def, {}: cannot read '{}'", row.mnemonic, word));
}

Form parse_form(const InsnFacts& row) {
  Form form;
  for_each_part(row.operands, ' ', [&](std::string_view text) {
    Slot& slot = form.slots.emplace_back();
    slot.optional = take_last(text, '?');
    for_each_part(text, '|', [&](std::string_view choice_text) {
      Choice& c = slot.choices.emplace_back();
      c.kind = choice_text[0];
      choice_text.remove_prefix(1);
      if (choice_text.empty()) return;
      if (choice_text[0] == ':') {
        std::optional<ScalarType> type = find_type(choice_text.substr(1));
        if (!type) bad_row(row, choice_text);
        c.rule = Choice::fixed;
        c.type = *type;
      } else {
        c.rule = choice_text == "x" ? Choice::doubled : Choice::indexed;
        c.index = choice_text == "x" ? 0 : choice_text[0] - '0';
      }
    });
  });
  for_each_part(row.modifiers, ' ', [&](std::string_view text) {
    ModifierGroup& group = form.groups.emplace_back();
    group.required = take_last(text, '!');
    group.spelled = text;
    for_each_part(text, '|', [&](std::string_view word) {
      if (word == "#mnk") {
        group.has_shape = true;
        return;
      }
      std::optional<Suffix> suffix = find_suffix(word);
      if (!suffix || !suffix->is_mod()) bad_row(row, word);
      group.mods.push_back(suffix->mod());
    });
  });
  for_each_part(row.types, ' ', [&](std::string_view text) {
    TypeSlot& slot = form.types.emplace_back();
    slot.optional = take_last(text, '?');
    slot.spelled = text;
    for_each_part(text, '|', [&](std::string_view word) {
      if (word == "*") {
        slot.allowed = ~uint64_t{0};
        return;
      }
      std::optional<ScalarType> type = find_type(word);
      if (!type) bad_row(row, word);
      slot.allowed |= uint64_t{1} << static_cast<int>(*type);
    });
  });
  return form;
}

const Form& form_of(Op op) {
  static const std::vector<Form> kForms = [] {
    std::vector<Form> forms;
    for (const InsnFacts& row : all_insns()) forms.push_back(parse_form(row));
    return forms;
  }();
  return kForms[static_cast<size_t>(op)];
}

bool is_integer(ScalarType t) { return is_signed(t) || is_unsigned(t); }

ScalarType twice(ScalarType t) {
  switch (t) {
    case ScalarType::u16:
      return ScalarType::u32;
    case ScalarType::s16:
      return ScalarType::s32;
    case ScalarType::u32:
      return ScalarType::u64;
    case ScalarType::s32:
      return ScalarType::s64;
    default:
      return t;
  }
}

// May a register declared `declared` stand where the instruction says `wanted`? Loads, stores and conversions
// also take wider registers, and do not mind integers in float registers of a memory operand.
bool fits(ScalarType declared, ScalarType wanted, bool loose) {
  if ((declared == ScalarType::pred) != (wanted == ScalarType::pred)) return false;
  if (loose) return bits(declared) >= bits(wanted);
  if (bits(declared) != std::max(bits(wanted), bits(wanted) < 16 && bits(declared) == 16 ? 16 : 0))
    return false;
  if (declared == wanted || is_untyped(declared) || is_untyped(wanted)) return true;
  if (wanted == ScalarType::tf32) return declared == ScalarType::f32;
  return is_integer(declared) && is_integer(wanted);
}

class Checker {
 public:
  Checker(const Module& module, const Function& f, const Instruction& i)
      : module_(module), f_(f), i_(i), row_(insn_facts(i.op)), form_(form_of(i.op)) {}

  std::string run() {
    if (!target() || !modifiers() || !types() || !combinations() || !operands()) return std::move(message_);
    return "";
  }

 private:
  bool fail(std::string message) {
    message_ = fmt::format("{}: {}", row_.mnemonic, message);
    return false;
  }
  bool target();
  bool is_form(std::string_view when) const;
  bool modifiers();
  bool types();
  bool combinations();
  bool conversion();
  bool operands();
  bool match(std::span<const Operand> operands, size_t operand, size_t slot);
  bool match(const Operand& o, const Choice& c) const;
  bool match_value(const Operand& o, const Choice& c, bool written, bool loose) const;
  std::optional<ScalarType> wanted(const Choice& c) const;
  std::string describe(const Slot& slot) const;
  std::string describe(const Operand& o) const;

  const Module& module_;
  const Function& f_;
  const Instruction& i_;
  const InsnFacts& row_;
  const Form& form_;
  std::string message_;
  // The furthest the operands matched, for the message.
  size_t failed_operand_ = 0;
  size_t failed_slot_ = 0;
};

bool Checker::target() {
  Target target = Target::parse(module_.target).value_or(Target{});
  if (!meets(target, row_.target))
    return fail(fmt::format("needs {}, the module's target is {}", requirement_in_words(row_.target),
                            module_.target));
  if (module_.version < row_.version)
    return fail(fmt::format("needs PTX {}.{}, the module's version is {}.{}", row_.version / 10,
                            row_.version % 10, module_.version / 10, module_.version % 10));
  for (Suffix s : i_.suffixes())
    if (!meets(target, target_of(s)))
      return fail(fmt::format("'.{}' needs {}, the module's target is {}", s.spelling(),
                              requirement_in_words(target_of(s)), module_.target));
  for (const LaterForm& form : later_forms())
    if (form.op == i_.op && !meets(target, form.target) && is_form(form.when))
      return fail(fmt::format("this form ({}) needs {}, the module's target is {}", form.when,
                              requirement_in_words(form.target), module_.target));
  return true;
}

// Whether a form that PTX_NEEDS describes is the one written.
bool Checker::is_form(std::string_view when) const {
  bool all = true;
  for_each_part(when, '+', [&](std::string_view part) {
    if (part[0] == '#') {
      all &= i_.operand_count == static_cast<uint32_t>(part[1] - '0');
    } else if (part[0] == '%') {
      all &= i_.type_count() == part[1] - '0';
    } else {
      bool absent = part[0] == '!';
      std::optional<Suffix> suffix = find_suffix(part.substr(absent ? 1 : 0));
      if (!suffix) bad_row(row_, part);
      std::span<const Suffix> written = i_.suffixes();
      all &= (std::find(written.begin(), written.end(), *suffix) == written.end()) == absent;
    }
  });
  return all;
}

bool Checker::modifiers() {
  uint64_t filled = 0;
  for (Suffix s : i_.suffixes()) {
    if (s.is_type()) continue;
    bool known = false;
    bool placed = false;
    for (size_t g = 0; g < form_.groups.size() && !placed; ++g) {
      const ModifierGroup& group = form_.groups[g];
      bool member = s.is_shape()
                        ? group.has_shape
                        : std::find(group.mods.begin(), group.mods.end(), s.mod()) != group.mods.end();
      known |= member;
      placed = member && (filled >> g & 1) == 0;
      if (placed) filled |= uint64_t{1} << g;
    }
    if (!known) {
      std::vector<std::string> candidates;
      for (const ModifierGroup& group : form_.groups)
        for (Mod m : group.mods) candidates.emplace_back(name(m));
      std::string nearest = nearest_word(s.spelling(), candidates);
      return fail(fmt::format("has no modifier '.{}'{}", s.spelling(),
                              nearest.empty() ? "" : fmt::format("; did you mean '.{}'?", nearest)));
    }
    if (!placed) return fail(fmt::format("'.{}' clashes with another modifier", s.spelling()));
  }
  for (size_t g = 0; g < form_.groups.size(); ++g)
    if (form_.groups[g].required && (filled >> g & 1) == 0)
      return fail(fmt::format("needs one of the modifiers {}",
                              form_.groups[g].has_shape ? "mMnNkK" : form_.groups[g].spelled));
  return true;
}

bool Checker::types() {
  int next = 0;
  int count = i_.type_count();
  for (const TypeSlot& slot : form_.types) {
    bool present = next < count && (slot.allowed >> static_cast<int>(i_.type(next)) & 1) != 0;
    if (present) {
      ++next;
    } else if (!slot.optional) {
      if (next < count)
        return fail(
            fmt::format("type {} is '.{}', expected one of {}", next + 1, name(i_.type(next)), slot.spelled));
      return fail(fmt::format("needs a type, one of {}", slot.spelled));
    }
  }
  if (next < count) return fail(fmt::format("'.{}' is one type too many", name(i_.type(next))));
  return true;
}

// What depends on several words at once.
bool Checker::combinations() {
  ScalarType type = i_.type(0);
  switch (i_.op) {
    case Op::cvt:
      return conversion();
    case Op::add:
    case Op::sub:
    case Op::mul:
    case Op::mad:
    case Op::div: {
      if (!is_integer(type)) return true;
      for (Mod m : {Mod::rn, Mod::rz, Mod::rm, Mod::rp, Mod::approx, Mod::full})
        if (i_.has(m)) return fail(fmt::format("'.{}' does not go with integers", name(m)));
      bool halves = i_.has(Mod::lo) || i_.has(Mod::hi) || i_.has(Mod::wide);
      if ((i_.op == Op::mul || i_.op == Op::mad) && !halves)
        return fail("needs one of the modifiers hi|lo|wide");
      return true;
    }
    case Op::atom:
    case Op::red: {
      Mod op = i_.one_of({Mod::add, Mod::min, Mod::max, Mod::inc, Mod::dec}, Mod::and_);
      bool fits_type = op == Mod::and_ ? is_untyped(type) : !is_untyped(type);
      if (op == Mod::inc || op == Mod::dec) fits_type = type == ScalarType::u32;
      return fits_type || fail(fmt::format("'.{}' does not go with .{}",
                                           op == Mod::and_ ? "and|or|xor|exch|cas" : name(op), name(type)));
    }
    case Op::redux_sync: {
      bool bitwise = i_.has(Mod::and_) || i_.has(Mod::or_) || i_.has(Mod::xor_);
      bool fits_type =
          bitwise ? is_untyped(type) : !is_untyped(type) && !(is_float(type) && i_.has(Mod::add));
      return fits_type || fail(fmt::format("this operation does not go with .{}", name(type)));
    }
    default:
      return true;
  }
}

// cvt must be told how to round wherever a value may have to be.
bool Checker::conversion() {
  auto plain_float = [](ScalarType t) {
    return t == ScalarType::f16 || t == ScalarType::bf16 || t == ScalarType::f32 || t == ScalarType::f64;
  };
  ScalarType to = i_.type(0);
  ScalarType from = i_.type(1);
  auto one_of = [&](Mod a, Mod b, Mod c, Mod d) { return i_.has(a) || i_.has(b) || i_.has(c) || i_.has(d); };
  bool narrows = plain_float(from) && plain_float(to) && bits(to) < bits(from);
  if (((is_integer(from) && plain_float(to)) || narrows) && !one_of(Mod::rn, Mod::rz, Mod::rm, Mod::rp) &&
      !i_.has(Mod::rs))
    return fail(
        fmt::format("from .{} to .{} needs a rounding modifier, one of rn|rz|rm|rp", name(from), name(to)));
  if (plain_float(from) && is_integer(to) && !one_of(Mod::rni, Mod::rzi, Mod::rmi, Mod::rpi))
    return fail(fmt::format("from .{} to .{} needs a rounding modifier, one of rni|rzi|rmi|rpi", name(from),
                            name(to)));
  return true;
}

std::optional<ScalarType> Checker::wanted(const Choice& c) const {
  switch (c.rule) {
    case Choice::any:
      return std::nullopt;
    case Choice::fixed:
      return c.type;
    case Choice::doubled:
      return i_.has(Mod::wide) ? twice(i_.type(0)) : i_.type(0);
    case Choice::indexed:
      break;
  }
  // Where a second type may be left out, the first stands for it.
  return i_.type(c.index < i_.type_count() ? c.index : 0);
}

bool Checker::match_value(const Operand& o, const Choice& c, bool written, bool loose) const {
  std::optional<ScalarType> type = wanted(c);
  switch (o.kind) {
    case OperandKind::reg:
      return (!o.negated || f_.type_of(o.reg()) == ScalarType::pred) &&
             (!type || fits(f_.type_of(o.reg()), *type, loose));
    case OperandKind::sink:
      return written;
    case OperandKind::special:
      return !written && (!type || (*type == ScalarType::pred) ==
                                       (type_of(static_cast<SpecialReg>(o.id)) == ScalarType::pred));
    case OperandKind::immediate:
      return !written && (!type || !is_float(*type));
    case OperandKind::f32:
    case OperandKind::f64:
      return !written && (!type || is_float(*type) || is_untyped(*type));
    case OperandKind::symbol:
      return !written && o.ref != Ref::label && (!type || bits(*type) >= 32);
    default:
      return false;
  }
}

bool Checker::match(const Operand& o, const Choice& c) const {
  std::span<const Operand> elements;
  if (o.has_elements()) elements = f_.elements_of(o);
  auto all = [&](bool written, bool loose, const Choice& element) {
    return std::all_of(elements.begin(), elements.end(),
                       [&](const Operand& e) { return match_value(e, element, written, loose); });
  };
  Choice untyped;
  Choice predicate;
  predicate.rule = Choice::fixed;
  predicate.type = ScalarType::pred;
  switch (c.kind) {
    case 'd':
      return match_value(o, c, true, false);
    case 's':
      return match_value(o, c, false, false);
    case 'D':
    case 'S': {
      bool written = c.kind == 'D';
      if (o.kind != OperandKind::vector) return match_value(o, c, written, i_.op != Op::mov);
      return all(written, true,
                 i_.op == Op::mov ? untyped : c);  // mov packs and unpacks: elements are narrower
    }
    case 'w':
    case 'v':
      return o.kind == OperandKind::vector ? all(c.kind == 'w', true, untyped)
                                           : match_value(o, untyped, c.kind == 'w', true);
    case 'q':
      return match_value(o, predicate, true, false);
    case 'p':
      return o.kind == OperandKind::reg && match_value(o, predicate, false, false);
    case 'P':
    case 'Q': {
      const Choice& first = c.rule == Choice::any ? predicate : c;
      if (o.kind != OperandKind::pair) return c.kind == 'Q' && match_value(o, first, true, false);
      return match_value(elements[0], first, true, false) && match_value(elements[1], predicate, true, false);
    }
    case 'a':
      return o.kind == OperandKind::address;
    case 'm':
      return o.kind == OperandKind::tensor;
    case 'i':
      return o.kind == OperandKind::immediate;
    case 'l':
      return o.kind == OperandKind::symbol && o.ref == Ref::label;
    case 't':
      return o.kind == OperandKind::symbol && o.ref == Ref::target_list;
    default:
      return false;
  }
}

// Matches operands from `operand` on with slots from `slot` on; optional slots may be passed over.
bool Checker::match(std::span<const Operand> operands, size_t operand, size_t slot) {
  if (slot == form_.slots.size()) return operand == operands.size();
  const Slot& s = form_.slots[slot];
  if (operand < operands.size()) {
    const Operand& o = operands[operand];
    bool fills =
        std::any_of(s.choices.begin(), s.choices.end(), [&](const Choice& c) { return match(o, c); });
    if (fills && match(operands, operand + 1, slot + 1)) return true;
    if (!fills && (operand > failed_operand_ || (operand == failed_operand_ && failed_slot_ == 0))) {
      failed_operand_ = operand;
      failed_slot_ = slot;
    }
  }
  return s.optional && match(operands, operand, slot + 1);
}

bool Checker::operands() {
  std::span<const Operand> operands = f_.operands_of(i_);
  if (i_.op == Op::call) return true;  // its shape is the reader's and the builder's
  size_t least = 0;
  for (const Slot& s : form_.slots) least += !s.optional;
  if (operands.size() < least || operands.size() > form_.slots.size()) {
    std::string takes = least == form_.slots.size() ? std::to_string(least)
                                                    : fmt::format("{} to {}", least, form_.slots.size());
    return fail(fmt::format("takes {} operand{}, {} given", takes, takes == "1" ? "" : "s", operands.size()));
  }
  if (match(operands, 0, 0)) return true;
  return fail(fmt::format("operand {} is {}, expected {}", failed_operand_ + 1,
                          describe(operands[failed_operand_]), describe(form_.slots[failed_slot_])));
}

std::string Checker::describe(const Slot& slot) const {
  std::string out;
  for (const Choice& c : slot.choices) {
    if (!out.empty()) out += " or ";
    std::optional<ScalarType> type = wanted(c);
    std::string of_type = type ? fmt::format(".{} ", name(*type)) : "";
    switch (c.kind) {
      case 'd':
        out += fmt::format("a {}register", of_type);
        break;
      case 's':
        out += fmt::format("a {}register or constant", of_type);
        break;
      case 'D':
        out += fmt::format("a {}register or a vector of them", of_type);
        break;
      case 'S':
        out += fmt::format("a {}register, a constant or a vector of them", of_type);
        break;
      case 'w':
      case 'v':
        out += "a vector of registers";
        break;
      case 'q':
      case 'p':
        out += "a predicate";
        break;
      case 'Q':
        out += fmt::format("a {}register or a pair d|p", type ? of_type : "predicate ");
        break;
      case 'P':
        out += "a pair d|p";
        break;
      case 'a':
        out += "an address [..]";
        break;
      case 'm':
        out += "a tensor address [map, {..}]";
        break;
      case 'i':
        out += "a constant";
        break;
      case 't':
        out += "a list of labels";
        break;
      default:
        out += "a label";
        break;
    }
  }
  return out;
}

std::string Checker::describe(const Operand& o) const {
  switch (o.kind) {
    case OperandKind::reg:
      return fmt::format("{}, a .{} register", f_.register_name(o.reg()), name(f_.type_of(o.reg())));
    case OperandKind::special:
      return fmt::format("the special register %{}", name(static_cast<SpecialReg>(o.id)));
    case OperandKind::immediate:
      return fmt::format("the integer {}", o.value);
    case OperandKind::f32:
    case OperandKind::f64:
      return "a float";
    case OperandKind::symbol:
      return o.ref == Ref::label ? "a label" : "a symbol";
    case OperandKind::address:
      return "an address";
    case OperandKind::vector: {
      // The element to blame is more useful than "a vector".
      std::string out = fmt::format("a vector of {}", o.count);
      for (const Operand& e : f_.elements_of(o))
        if (e.kind == OperandKind::reg) return fmt::format("{}, the first {}", out, describe(e));
      return out;
    }
    case OperandKind::pair:
      return "a pair d|p";
    case OperandKind::tensor:
      return "a tensor address";
    case OperandKind::tuple:
      return "a list in parentheses";
    case OperandKind::sink:
      return "'_'";
  }
  return "";
}

}  // namespace

std::string check(const Module& module, const Function& function, const Instruction& instruction) {
  return Checker(module, function, instruction).run();
}

std::vector<Diagnostic> check(const Module& module, std::string_view source_name, int limit) {
  std::vector<Diagnostic> out;
  for (const Function& f : module.functions) {
    for (const Instruction& i : f.body) {
      std::string message = check(module, f, i);
      if (message.empty()) continue;
      Diagnostic d;
      d.message = std::move(message);
      d.facts.push_back(write(module, f, i));
      if (i.pos.line != 0) {
        d.where = {intern(source_name), i.pos.line, intern(f.name)};
      } else if (i.loc != Instruction::kNone) {
        for (const File& file : module.files)
          if (file.index == f.locs[i.loc].file)
            d.where = {intern(file.path), f.locs[i.loc].line, intern(f.name)};
      }
      out.push_back(std::move(d));
      if (static_cast<int>(out.size()) >= limit) return out;
    }
  }
  return out;
}

}  // namespace imbrex::ptx
