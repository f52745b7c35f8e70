// SPDX-License-Identifier: Apache-2.0
#include "ptx/writer.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>

#include "ptx/insns.h"

namespace imbrex::ptx {
namespace {

constexpr std::string_view kSpaceNames[] = {"reg", "global", "const", "shared", "local", "param"};
constexpr std::string_view kLinkageNames[] = {"", ".extern ", ".visible ", ".weak ", ".common "};

// Appends to one growing string; formatting libraries would take most of the time here.
class Writer {
 public:
  explicit Writer(const Module& module) : module_(module) {}

  std::string module();
  std::string instruction(const Function& f, const Instruction& i) {
    f_ = &f;
    instruction(i);
    return std::move(out_);
  }

 private:
  void text(std::string_view s) { out_.append(s); }
  void character(char c) { out_.push_back(c); }
  void number(int64_t v) {
    char buffer[24];
    out_.append(buffer, std::to_chars(buffer, buffer + sizeof buffer, v).ptr);
  }
  void unsigned_number(uint64_t v) {
    char buffer[24];
    out_.append(buffer, std::to_chars(buffer, buffer + sizeof buffer, v).ptr);
  }
  void hex(uint64_t v, int digits) {
    char buffer[16];
    for (int i = digits - 1; i >= 0; --i, v >>= 4) buffer[i] = "0123456789ABCDEF"[v & 15];
    out_.append(buffer, static_cast<size_t>(digits));
  }
  void offset(int64_t v) {
    if (v == 0) return;
    character('+');  // ptxas wants it before a minus sign too
    number(v);
  }
  template <class Items, class F>
  void list(const Items& items, F&& f) {
    bool first = true;
    for (const auto& item : items) {
      if (!first) text(", ");
      first = false;
      f(item);
    }
  }

  void attributes(const std::vector<std::string>& words);
  void declaration(const Variable& v);
  void variable(const Variable& v);
  void initialiser(const Variable& v);
  void element(const Variable& v, size_t offset, int64_t width);
  void parameters(const std::vector<Variable>& params, bool one_a_line);
  void head(const Function& f, bool is_prototype);
  void triple(std::string_view word, const std::array<int, 3>& v);
  void directives(const Function& f);
  void function(const Function& f);
  void registers(const Function& f);
  void loc(const Loc& l);
  void target_list(const TargetList& list);
  void prototype(const Prototype& p);

  void instruction(const Instruction& i);
  void call(std::span<const Operand> operands);
  void operand(const Operand& o, bool prefer_hex);
  void elements(const Operand& o, char open, char close, bool prefer_hex);
  void register_name(Reg reg);
  void symbol(SymbolRef ref);

  const Module& module_;
  const Function* f_ = nullptr;
  std::string out_;
};

std::string Writer::module() {
  text(".version ");
  number(module_.version / 10);
  character('.');
  number(module_.version % 10);
  text("\n.target ");
  text(module_.target);
  for (const std::string& option : module_.target_options) text(", "), text(option);
  text("\n.address_size ");
  number(module_.address_size);
  text("\n\n");
  for (const std::string& pragma : module_.pragmas) text(".pragma \""), text(pragma), text("\";\n");
  for (const File& f : module_.files) {
    text(".file ");
    number(f.index);
    text(" \""), text(f.path), character('"');
    if (f.timestamp >= 0) text(", "), number(f.timestamp), text(", "), number(f.size);
    character('\n');
  }
  // What is only declared, and what something above its definition may refer to.
  for (const Function& f : module_.functions)
    if (!f.has_body || f.declared_early) head(f, true);
  for (const Variable& v : module_.variables) variable(v), text(";\n");
  for (const Function& f : module_.functions)
    if (f.has_body) function(f);
  for (const Alias& a : module_.aliases) {
    text(".alias "), text(module_.functions[a.function].name);
    text(", "), text(module_.functions[a.aliasee].name), text(";\n");
  }
  for (const Section& s : module_.sections)
    text(".section "), text(s.name), text(" {\n"), text(s.text), text("}\n");
  return std::move(out_);
}

void Writer::attributes(const std::vector<std::string>& words) {
  if (words.empty()) return;
  text(".attribute(");
  list(words, [&](const std::string& word) { character('.'), text(word); });
  text(") ");
}

// From the state space to the dimensions.
void Writer::declaration(const Variable& v) {
  character('.'), text(kSpaceNames[static_cast<size_t>(v.space)]), character(' ');
  attributes(v.attributes);
  if (v.align != 0) text(".align "), number(v.align), character(' ');
  if (v.vector != 1) text(".v"), number(v.vector), character(' ');
  character('.'), text(name(v.type)), character(' ');
  if (v.is_pointer) {
    text(".ptr ");
    if (!v.pointer_space.empty()) character('.'), text(v.pointer_space), character(' ');
    if (v.pointer_align != 0) text(".align "), number(v.pointer_align), character(' ');
  }
  text(v.name);
  for (int64_t dim : v.dims) {
    character('[');
    if (dim != Variable::kUnsized) number(dim);
    character(']');
  }
}

void Writer::variable(const Variable& v) {
  text(kLinkageNames[static_cast<size_t>(v.linkage)]);
  declaration(v);
  if (!v.initialiser.empty()) text(" = "), initialiser(v);
}

// Arrays of several dimensions are written flat inside one list a row of the outermost dimension, which PTX
// allows only when every dimension is opened; so braces follow the dimensions.
void Writer::initialiser(const Variable& v) {
  int64_t width = bytes(v.type);
  size_t count = v.initialiser.size() / static_cast<size_t>(width);
  if (v.dims.empty() && v.vector == 1) return element(v, 0, width);
  std::vector<size_t> strides;  // elements in one list of each nesting level, outermost first
  size_t stride = static_cast<size_t>(v.vector);
  if (v.vector != 1) strides.push_back(stride);
  for (size_t d = v.dims.size(); d-- > 0;) {
    stride *= static_cast<size_t>(std::max<int64_t>(v.dims[d], 1));
    strides.insert(strides.begin(), stride);
  }
  for (size_t i = 0; i < count; ++i) {
    if (i > 0) text(", ");
    for (size_t s : strides)
      if (i % s == 0) character('{');
    element(v, i * static_cast<size_t>(width), width);
    for (size_t s : strides)
      if ((i + 1) % s == 0 || i + 1 == count) character('}');
  }
}

void Writer::element(const Variable& v, size_t offset_in_bytes, int64_t width) {
  for (const Relocation& r : v.relocations) {
    if (r.offset != offset_in_bytes) continue;
    bool masked = r.shift != 0 || width < module_.address_size / 8;
    if (masked)
      text("0x"), hex((width >= 8 ? ~uint64_t{0} : (uint64_t{1} << (8 * width)) - 1) << r.shift, 16),
          character('(');
    if (r.generic) text("generic(");
    symbol(r.symbol);
    if (r.generic) character(')');
    offset(r.addend);
    if (masked) character(')');
    return;
  }
  uint64_t value = 0;
  std::memcpy(&value, v.initialiser.data() + offset_in_bytes,
              static_cast<size_t>(std::min<int64_t>(width, 8)));
  if (v.type == ScalarType::f32) {
    text("0f"), hex(value, 8);
  } else if (v.type == ScalarType::f64) {
    text("0d"), hex(value, 16);
  } else {
    unsigned_number(value);
  }
}

void Writer::parameters(const std::vector<Variable>& params, bool one_a_line) {
  character('(');
  bool first = true;
  for (const Variable& p : params) {
    if (!first) character(',');
    if (one_a_line)
      text("\n\t");
    else if (!first)
      character(' ');
    first = false;
    declaration(p);
  }
  text(one_a_line && !params.empty() ? "\n)" : ")");
}

void Writer::triple(std::string_view word, const std::array<int, 3>& v) {
  if (v == std::array<int, 3>{}) return;
  character('.'), text(word), character(' ');
  list(v, [&](int n) { number(n); });
  character('\n');
}

void Writer::directives(const Function& f) {
  auto count = [&](std::string_view word, int n) {
    if (n != 0) character('.'), text(word), character(' '), number(n), character('\n');
  };
  triple("maxntid", f.maxntid);
  triple("reqntid", f.reqntid);
  count("minnctapersm", f.minnctapersm);
  count("maxnctapersm", f.maxnctapersm);
  count("maxnreg", f.maxnreg);
  if (f.explicitcluster) text(".explicitcluster\n");
  triple("reqnctapercluster", f.reqnctapercluster);
  count("maxclusterrank", f.maxclusterrank);
  if (f.blocksareclusters) text(".blocksareclusters\n");
  if (f.noreturn) text(".noreturn\n");
  for (const std::string& pragma : f.pragmas) text(".pragma \""), text(pragma), text("\";\n");
}

void Writer::head(const Function& f, bool is_prototype) {
  text(kLinkageNames[static_cast<size_t>(f.linkage)]);
  text(f.is_entry ? ".entry " : ".func ");
  attributes(f.attributes);
  if (!f.return_params.empty()) parameters(f.return_params, false), character(' ');
  text(f.name);
  parameters(f.params, !is_prototype);
  if (is_prototype) {
    text(f.noreturn ? " .noreturn;\n" : ";\n");
  } else {
    character('\n');
    directives(f);
  }
}

void Writer::registers(const Function& f) {
  for (uint32_t d = 0; d < f.register_decls.size(); ++d) {
    const RegisterDecl& decl = f.register_decls[d];
    bool is_param = false;  // declared among the parameters
    for (const auto* params : {&f.params, &f.return_params})
      for (const Variable& v : *params)
        is_param |= v.space == Space::reg && v.reg.is_valid() && f.registers[v.reg.id].decl == d;
    if (is_param) continue;
    text("\t.reg ."), text(name(decl.type)), character(' '), text(decl.prefix);
    if (decl.is_range) character('<'), number(decl.count), character('>');
    text(";\n");
  }
}

void Writer::function(const Function& f) {
  f_ = &f;
  character('\n');
  head(f, false);
  text("{\n");
  registers(f);
  for (const Variable& v : f.variables) character('\t'), variable(v), text(";\n");

  // Labels in the order of their positions; everything else between instructions is in that order already.
  std::vector<uint32_t> labels(f.labels.size());
  for (uint32_t i = 0; i < labels.size(); ++i) labels[i] = i;
  std::stable_sort(labels.begin(), labels.end(),
                   [&](uint32_t a, uint32_t b) { return f.labels[a].position < f.labels[b].position; });
  size_t next_label = 0;
  size_t next_pragma = 0;
  size_t next_list = 0;
  size_t next_prototype = 0;
  uint32_t loc_in_force = Instruction::kNone;  // kNone + 1 is 0: the first to print
  for (uint32_t at = 0; at <= f.body.size(); ++at) {
    for (; next_label < labels.size() && f.labels[labels[next_label]].position == at; ++next_label)
      text(f.labels[labels[next_label]].name), text(":\n");
    for (; next_pragma < f.body_pragmas.size() && f.body_pragmas[next_pragma].position == at; ++next_pragma)
      text("\t.pragma \""), text(f.body_pragmas[next_pragma].text), text("\";\n");
    for (; next_list < f.target_lists.size() && f.target_lists[next_list].position == at; ++next_list)
      target_list(f.target_lists[next_list]);
    for (; next_prototype < f.prototypes.size() && f.prototypes[next_prototype].position == at;
         ++next_prototype)
      prototype(f.prototypes[next_prototype]);
    if (at == f.body.size()) break;
    const Instruction& i = f.body[at];
    if (i.loc != loc_in_force && i.loc != Instruction::kNone) {
      // Those in between too: ptxas wants a .loc for every place that an inlined_at names.
      for (uint32_t l = std::min(loc_in_force + 1, i.loc); l <= i.loc; ++l) loc(f.locs[l]);
      loc_in_force = i.loc;
    }
    if (i.comment != Instruction::kNone) {
      std::string_view rest = f.comments[i.comment];
      for (size_t end = 0; end != rest.npos; rest.remove_prefix(std::min(end, rest.size() - 1) + 1)) {
        end = rest.find('\n');
        text("\t// "), text(rest.substr(0, end)), character('\n');
        if (end == rest.npos) break;
      }
    }
    character('\t');
    instruction(i);
    character('\n');
  }
  text("}\n");
}

void Writer::loc(const Loc& l) {
  text("\t.loc "), number(l.file), character(' '), number(l.line), character(' '), number(l.column);
  if (!l.function_name.empty()) {
    text(", function_name "), text(l.function_name);
    if (l.function_name_offset != 0) character('+'), number(l.function_name_offset);
  }
  if (l.inlined_line != 0)
    text(", inlined_at "), number(l.inlined_file), character(' '), number(l.inlined_line), character(' '),
        number(l.inlined_column);
  character('\n');
}

void Writer::target_list(const TargetList& targets) {
  character('\t'), text(targets.name), text(targets.is_call ? ": .calltargets " : ": .branchtargets ");
  list(targets.targets,
       [&](uint32_t t) { text(targets.is_call ? module_.functions[t].name : f_->labels[t].name); });
  text(";\n");
}

void Writer::prototype(const Prototype& p) {
  character('\t'), text(p.name), text(": .callprototype ");
  parameters(p.return_params, false);
  text(" _ ");
  parameters(p.params, false);
  text(p.noreturn ? " .noreturn;\n" : ";\n");
}

void Writer::instruction(const Instruction& i) {
  if (i.guard.is_valid()) {
    text(i.guard_negated ? "@!" : "@");
    register_name(i.guard);
    character(' ');
  }
  text(name(i.op));
  bool prefer_hex = false;
  for (Suffix s : i.suffixes()) {
    character('.');
    if (s.is_type()) {
      text(name(s.type()));
      prefer_hex |= is_untyped(s.type());
    } else if (s.is_mod()) {
      text(name(s.mod()));
    } else {
      Shape shape = s.shape();
      character('m'), number(shape.m), character('n'), number(shape.n), character('k'), number(shape.k);
    }
  }
  std::span<const Operand> operands = f_->operands_of(i);
  if (!operands.empty()) character(' ');
  if (i.op == Op::call) {
    call(operands);
  } else {
    list(operands, [&](const Operand& o) { operand(o, prefer_hex); });
  }
  character(';');
}

void Writer::call(std::span<const Operand> operands) {
  bool needs_arguments = operands[2].count > 0 || operands.size() > 3;
  if (operands[0].count > 0) elements(operands[0], '(', ')', false), text(", ");
  operand(operands[1], false);
  if (needs_arguments) text(", "), elements(operands[2], '(', ')', false);
  if (operands.size() > 3) text(", "), operand(operands[3], false);
}

void Writer::elements(const Operand& o, char open, char close, bool prefer_hex) {
  character(open);
  list(f_->elements_of(o), [&](const Operand& e) { operand(e, prefer_hex); });
  character(close);
}

void Writer::operand(const Operand& o, bool prefer_hex) {
  switch (o.kind) {
    case OperandKind::reg:
      if (o.negated) character('!');
      return register_name(o.reg());
    case OperandKind::special:
      character('%');
      return text(name(static_cast<SpecialReg>(o.id)));
    case OperandKind::immediate:
      // Masks and descriptors read better in hexadecimal.
      if ((prefer_hex && o.value > 0xffff) || o.value == 0xffffffff) {
        text("0x");
        hex(static_cast<uint64_t>(o.value), o.value > 0xffffffff ? 16 : 8);
        if (o.is_unsigned) character('U');
      } else if (o.is_unsigned) {
        unsigned_number(static_cast<uint64_t>(o.value)), character('U');
      } else {
        number(o.value);
      }
      return;
    case OperandKind::f32:
      text("0f");
      return hex(static_cast<uint64_t>(o.value), 8);
    case OperandKind::f64:
      text("0d");
      return hex(static_cast<uint64_t>(o.value), 16);
    case OperandKind::symbol:
      symbol(o.symbol());
      return offset(o.value);
    case OperandKind::address:
      character('[');
      if (o.ref == Ref::none) {
        number(o.value);
      } else {
        o.ref == Ref::reg ? register_name(o.reg()) : symbol(o.symbol());
        offset(o.value);
      }
      return character(']');
    case OperandKind::vector:
      return elements(o, '{', '}', prefer_hex);
    case OperandKind::tuple:
      return elements(o, '(', ')', prefer_hex);
    case OperandKind::pair: {
      std::span<const Operand> both = f_->elements_of(o);
      operand(both[0], false);
      character('|');
      return operand(both[1], false);
    }
    case OperandKind::tensor: {
      std::span<const Operand> both = f_->elements_of(o);
      operand(both[0], false);
      out_.pop_back();  // the ']' of the map's address comes last
      text(", ");
      operand(both[1], false);
      return character(']');
    }
    case OperandKind::sink:
      return character('_');
  }
}

void Writer::register_name(Reg reg) {
  const Register& r = f_->registers[reg.id];
  const RegisterDecl& decl = f_->register_decls[r.decl];
  text(decl.prefix);
  if (decl.is_range) unsigned_number(r.number);
}

void Writer::symbol(SymbolRef s) {
  switch (s.ref) {
    case Ref::none:
      return text("_");
    case Ref::reg:
      return register_name(Reg{s.index});
    case Ref::global:
      return text(module_.variables[s.index].name);
    case Ref::param:
      return text(f_->params[s.index].name);
    case Ref::return_param:
      return text(f_->return_params[s.index].name);
    case Ref::local:
      return text(f_->variables[s.index].name);
    case Ref::function:
      return text(module_.functions[s.index].name);
    case Ref::label:
      return text(f_->labels[s.index].name);
    case Ref::target_list:
      return text(f_->target_lists[s.index].name);
    case Ref::prototype:
      return text(f_->prototypes[s.index].name);
  }
}

}  // namespace

std::string write(const Module& module) { return Writer(module).module(); }

std::string write(const Module& module, const Function& function, const Instruction& instruction) {
  return Writer(module).instruction(function, instruction);
}

}  // namespace imbrex::ptx
