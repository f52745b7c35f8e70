// SPDX-License-Identifier: Apache-2.0
// equivalent(): do two trees say the same?
#include <fmt/format.h>

#include <algorithm>

#include "ptx/ptx.h"
#include "ptx/writer.h"

namespace imbrex::ptx {
namespace {

class Comparison {
 public:
  Comparison(const Module& a, const Module& b) : a_(a), b_(b) {}

  bool modules();
  std::string difference;

 private:
  bool differ(std::string what) {
    difference = std::move(what);
    return false;
  }
  bool same(const std::vector<Variable>& a, const std::vector<Variable>& b, std::string_view where);
  bool same(const Function& a, const Function& b);
  bool same_body(const Function& a, const Function& b);
  bool same_positions(const Function& a, const Function& b);
  bool same(const Operand& a, const Operand& b, const Function& fa, const Function& fb);
  bool same(const SymbolRef& a, const SymbolRef& b, const Function* fa, const Function* fb);

  const Module& a_;
  const Module& b_;
};

std::string_view name_of(const Module& m, const Function* f, SymbolRef s) {
  switch (s.ref) {
    case Ref::global:
      return m.variables[s.index].name;
    case Ref::function:
      return m.functions[s.index].name;
    case Ref::param:
      return f->params[s.index].name;
    case Ref::return_param:
      return f->return_params[s.index].name;
    case Ref::local:
      return f->variables[s.index].name;
    case Ref::label:
      return f->labels[s.index].name;
    case Ref::target_list:
      return f->target_lists[s.index].name;
    case Ref::prototype:
      return f->prototypes[s.index].name;
    case Ref::none:
    case Ref::reg:
      break;
  }
  return "";
}

bool Comparison::same(const SymbolRef& a, const SymbolRef& b, const Function* fa, const Function* fb) {
  if (a.ref != b.ref) return false;
  if (a.ref == Ref::reg)
    return fa->type_of(Reg{a.index}) == fb->type_of(Reg{b.index}) &&
           fa->register_name(Reg{a.index}) == fb->register_name(Reg{b.index});
  return name_of(a_, fa, a) == name_of(b_, fb, b);
}

bool Comparison::same(const Operand& a, const Operand& b, const Function& fa, const Function& fb) {
  if (a.kind != b.kind || a.negated != b.negated || a.is_unsigned != b.is_unsigned) return false;
  if (a.has_elements()) {
    std::span<const Operand> ea = fa.elements_of(a);
    std::span<const Operand> eb = fb.elements_of(b);
    return std::equal(ea.begin(), ea.end(), eb.begin(), eb.end(),
                      [&](const Operand& x, const Operand& y) { return same(x, y, fa, fb); });
  }
  if (a.kind == OperandKind::special) return a.id == b.id;
  if (a.kind == OperandKind::sink) return true;
  return (a.kind == OperandKind::reg || a.value == b.value) && same(a.symbol(), b.symbol(), &fa, &fb);
}

bool Comparison::same(const std::vector<Variable>& a, const std::vector<Variable>& b,
                      std::string_view where) {
  if (a.size() != b.size()) return differ(fmt::format("{}: {} and {} variables", where, a.size(), b.size()));
  for (size_t i = 0; i < a.size(); ++i) {
    const Variable& x = a[i];
    const Variable& y = b[i];
    bool declared_alike = x.name == y.name && x.space == y.space && x.linkage == y.linkage &&
                          x.type == y.type && x.vector == y.vector && x.align == y.align &&
                          x.dims == y.dims && x.attributes == y.attributes && x.is_pointer == y.is_pointer &&
                          x.pointer_space == y.pointer_space && x.pointer_align == y.pointer_align;
    if (!declared_alike)
      return differ(fmt::format("{}: variable {} and {} are declared differently", where, x.name, y.name));
    auto same_relocation = [&](const Relocation& p, const Relocation& q) {
      return p.offset == q.offset && p.addend == q.addend && p.generic == q.generic && p.size == q.size &&
             p.shift == q.shift && same(p.symbol, q.symbol, nullptr, nullptr);
    };
    if (x.initialiser != y.initialiser ||
        !std::equal(x.relocations.begin(), x.relocations.end(), y.relocations.begin(), y.relocations.end(),
                    same_relocation))
      return differ(fmt::format("{}: initialisers of {} differ", where, x.name));
  }
  return true;
}

bool Comparison::same_positions(const Function& a, const Function& b) {
  auto labels = [](const Function& f) {
    std::vector<std::pair<uint32_t, std::string_view>> out;
    for (const Label& l : f.labels) out.emplace_back(l.position, l.name);
    std::sort(out.begin(), out.end());
    return out;
  };
  if (labels(a) != labels(b)) return differ(a.name + ": labels differ");
  auto same_pragma = [](const Pragma& p, const Pragma& q) {
    return p.position == q.position && p.text == q.text;
  };
  if (!std::equal(a.body_pragmas.begin(), a.body_pragmas.end(), b.body_pragmas.begin(), b.body_pragmas.end(),
                  same_pragma))
    return differ(a.name + ": pragmas differ");
  if (a.target_lists.size() != b.target_lists.size() || a.prototypes.size() != b.prototypes.size())
    return differ(a.name + ": numbers of target lists or prototypes differ");
  for (size_t i = 0; i < a.target_lists.size(); ++i) {
    const TargetList& x = a.target_lists[i];
    const TargetList& y = b.target_lists[i];
    Ref ref = x.is_call ? Ref::function : Ref::label;
    auto same_target = [&](uint32_t p, uint32_t q) {
      return same(SymbolRef{ref, p}, SymbolRef{ref, q}, &a, &b);
    };
    if (x.name != y.name || x.is_call != y.is_call || x.position != y.position ||
        !std::equal(x.targets.begin(), x.targets.end(), y.targets.begin(), y.targets.end(), same_target))
      return differ(fmt::format("{}: target lists {} and {} differ", a.name, x.name, y.name));
  }
  for (size_t i = 0; i < a.prototypes.size(); ++i) {
    const Prototype& x = a.prototypes[i];
    const Prototype& y = b.prototypes[i];
    if (x.name != y.name || x.position != y.position || x.noreturn != y.noreturn)
      return differ(fmt::format("{}: prototypes {} and {} differ", a.name, x.name, y.name));
    if (!same(x.params, y.params, x.name) || !same(x.return_params, y.return_params, x.name)) return false;
  }
  return true;
}

bool Comparison::same_body(const Function& a, const Function& b) {
  if (a.body.size() != b.body.size())
    return differ(fmt::format("{}: {} and {} instructions", a.name, a.body.size(), b.body.size()));
  for (size_t n = 0; n < a.body.size(); ++n) {
    const Instruction& x = a.body[n];
    const Instruction& y = b.body[n];
    std::span<const Operand> ox = a.operands_of(x);
    std::span<const Operand> oy = b.operands_of(y);
    bool alike =
        x.op == y.op && x.guard_negated == y.guard_negated && x.guard.is_valid() == y.guard.is_valid() &&
        std::equal(x.suffixes().begin(), x.suffixes().end(), y.suffixes().begin(), y.suffixes().end()) &&
        (!x.guard.is_valid() || same({Ref::reg, x.guard.id}, {Ref::reg, y.guard.id}, &a, &b)) &&
        std::equal(ox.begin(), ox.end(), oy.begin(), oy.end(),
                   [&](const Operand& p, const Operand& q) { return same(p, q, a, b); });
    if (!alike)
      return differ(
          fmt::format("{}, instruction {}: '{}' and '{}'", a.name, n, write(a_, a, x), write(b_, b, y)));
    bool has_loc = x.loc != Instruction::kNone;
    if (has_loc != (y.loc != Instruction::kNone) || (has_loc && !(a.locs[x.loc] == b.locs[y.loc])))
      return differ(fmt::format("{}, instruction {}: '{}' has other .loc lines", a.name, n, write(a_, a, x)));
  }
  return true;
}

bool Comparison::same(const Function& a, const Function& b) {
  bool heads = a.is_entry == b.is_entry && a.has_body == b.has_body && a.declared_early == b.declared_early &&
               a.linkage == b.linkage && a.maxntid == b.maxntid && a.reqntid == b.reqntid &&
               a.reqnctapercluster == b.reqnctapercluster && a.minnctapersm == b.minnctapersm &&
               a.maxnctapersm == b.maxnctapersm && a.maxnreg == b.maxnreg &&
               a.maxclusterrank == b.maxclusterrank && a.explicitcluster == b.explicitcluster &&
               a.blocksareclusters == b.blocksareclusters && a.noreturn == b.noreturn &&
               a.pragmas == b.pragmas && a.attributes == b.attributes;
  if (!heads) return differ(a.name + ": directives differ");
  return same(a.return_params, b.return_params, a.name) && same(a.params, b.params, a.name) &&
         same(a.variables, b.variables, a.name) && same_body(a, b) && same_positions(a, b);
}

bool Comparison::modules() {
  if (a_.version != b_.version || a_.target != b_.target || a_.target_options != b_.target_options ||
      a_.address_size != b_.address_size)
    return differ("version, target or address size differ");
  if (a_.files != b_.files || a_.pragmas != b_.pragmas || a_.sections != b_.sections)
    return differ("files, pragmas or sections differ");
  if (!same(a_.variables, b_.variables, "module")) return false;
  // Declarations may stand in another order than they were made; functions are compared by name.
  if (a_.functions.size() != b_.functions.size()) return differ("numbers of functions differ");
  for (const Function& f : a_.functions) {
    const Function* other = b_.find_function(f.name);
    if (other == nullptr) return differ("only one has function " + f.name);
    if (!same(f, *other)) return false;
  }
  auto same_alias = [&](const Alias& x, const Alias& y) {
    return same(SymbolRef{Ref::function, x.function}, {Ref::function, y.function}, nullptr, nullptr) &&
           same(SymbolRef{Ref::function, x.aliasee}, {Ref::function, y.aliasee}, nullptr, nullptr);
  };
  if (!std::equal(a_.aliases.begin(), a_.aliases.end(), b_.aliases.begin(), b_.aliases.end(), same_alias))
    return differ("aliases differ");
  return true;
}

}  // namespace

bool equivalent(const Module& a, const Module& b, std::string* difference) {
  Comparison comparison(a, b);
  bool same = comparison.modules();
  if (difference != nullptr) *difference = comparison.difference;
  return same;
}

}  // namespace imbrex::ptx
