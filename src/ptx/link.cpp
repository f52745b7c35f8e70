// SPDX-License-Identifier: Apache-2.0
#include "ptx/link.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "imbrex/core/error.h"
#include "ptx/insns.h"

namespace imbrex::ptx {
namespace {

bool is_replaceable(Linkage linkage) { return linkage == Linkage::weak || linkage == Linkage::common; }
bool is_definition(const Function& f) { return f.has_body; }
bool is_definition(const Variable& v) { return v.linkage != Linkage::external; }

/// Newer targets later; of one generation the specific variant last.
int rank(const std::string& target) {
  const auto parsed = Target::parse(target);
  if (!parsed.has_value()) return -1;
  return 3 * parsed->sm + (parsed->variant == 'a' ? 2 : parsed->variant == 'f' ? 1 : 0);
}

class Linker {
 public:
  void add(LinkInput input);
  Module finish();

 private:
  /// A name that all modules share.
  struct Shared {
    SymbolRef symbol;
    std::string from;  // the input that defines it, or declared it first
  };
  /// Where something of the input is in the result, and whether that is it, not another of its name.
  struct Placed {
    uint32_t index;
    bool is_taken;
  };
  template <class Thing>
  Placed place(std::vector<Thing>& things, Thing& thing, Ref ref);
  std::string free_name(const std::string& name);
  void refuse(const std::string& message, const std::string& help) {
    wrong_.push_back({{}, message, {}, help});
  }
  SymbolRef moved(SymbolRef symbol) const;
  void move(Function& function) const;

  Module result_;
  std::map<std::string, Shared, std::less<>> shared_;
  std::set<std::string, std::less<>> names_;
  std::vector<Diagnostic> wrong_;
  // Of the input that is being added.
  std::string input_;
  std::vector<uint32_t> functions_, variables_;  // by index there, the index in the result
  std::map<uint32_t, uint32_t> files_;
};

std::string Linker::free_name(const std::string& name) {
  std::string free = name;
  for (int i = 2; !names_.insert(free).second; ++i) free = fmt::format("{}__{}", name, i);
  return free;
}

/// Where a function or a variable is in the result: a place of its own, or that of the one of its name.
template <class Thing>
Linker::Placed Linker::place(std::vector<Thing>& things, Thing& thing, Ref ref) {
  const bool is_shared = thing.linkage != Linkage::internal;
  const auto known = is_shared ? shared_.find(thing.name) : shared_.end();
  if (known == shared_.end()) {
    const auto index = static_cast<uint32_t>(things.size());
    if (is_shared) {
      shared_[thing.name] = {{ref, index}, input_};
      // An internal one has taken the name: that one is renamed, since every use of it is by index.
      const auto rename = [&](auto& others) {
        for (auto& other : others)
          if (other.name == thing.name && other.linkage == Linkage::internal)
            other.name = free_name(other.name);
      };
      rename(result_.functions);
      rename(result_.variables);
      names_.insert(thing.name);
    } else {
      thing.name = free_name(thing.name);
    }
    things.push_back(std::move(thing));
    return {index, true};
  }
  Shared& other = known->second;
  if (other.symbol.ref != ref) {
    refuse(fmt::format("'{}' is a {} in {} and a {} in {}", thing.name,
                       ref == Ref::function ? "variable" : "function", other.from,
                       ref == Ref::function ? "function" : "variable", input_),
           "");
    return {0, false};
  }
  Thing& there = things[other.symbol.index];
  const bool replaces =
      !is_definition(there) || (is_replaceable(there.linkage) && !is_replaceable(thing.linkage));
  if (is_definition(thing) && replaces) {
    there = std::move(thing);
    other.from = input_;
    return {other.symbol.index, true};
  }
  if (is_definition(thing) && !is_replaceable(thing.linkage) && !is_replaceable(there.linkage))
    refuse(fmt::format("'{}' is defined in {} and in {}", thing.name, other.from, input_),
           "define it once, and declare it `extern` elsewhere");
  return {other.symbol.index, false};
}

SymbolRef Linker::moved(SymbolRef symbol) const {
  if (symbol.ref == Ref::function) symbol.index = functions_[symbol.index];
  if (symbol.ref == Ref::global) symbol.index = variables_[symbol.index];
  return symbol;
}

void Linker::move(Function& f) const {
  for (Operand& o : f.operands)
    if (o.kind == OperandKind::symbol || o.kind == OperandKind::address) o.id = moved(o.symbol()).index;
  for (TargetList& list : f.target_lists)
    if (list.is_call)
      for (uint32_t& target : list.targets) target = functions_[target];
  for (Loc& loc : f.locs) {
    const auto file = files_.find(loc.file);
    loc = {file == files_.end() ? loc.file : file->second, loc.line, loc.column, "", 0, 0, 0, 0};
  }
  if (f.has_body && !f.is_entry) f.declared_early = true;  // functions may call what stands further down
}

void Linker::add(LinkInput input) {
  Module& m = input.module;
  input_ = std::move(input.name);
  files_.clear();
  for (const File& file : m.files) files_[file.index] = result_.file(file.path);
  if (result_.target.empty() || rank(m.target) > rank(result_.target)) {
    result_.target = m.target;
    result_.target_options = m.target_options;
  }
  result_.version = result_.functions.empty() && result_.variables.empty()
                        ? m.version
                        : std::max(result_.version, m.version);

  // Where everything will be, before anything is moved there: functions and variables name each other.
  std::vector<uint32_t> taken_functions, taken_variables;
  functions_.clear();
  variables_.clear();
  for (Function& f : m.functions) {
    const Placed placed = place(result_.functions, f, Ref::function);
    functions_.push_back(placed.index);
    if (placed.is_taken) taken_functions.push_back(placed.index);
  }
  for (Variable& v : m.variables) {
    const Placed placed = place(result_.variables, v, Ref::global);
    variables_.push_back(placed.index);
    if (placed.is_taken) taken_variables.push_back(placed.index);
  }
  if (!wrong_.empty()) return;
  for (const uint32_t f : taken_functions) move(result_.functions[f]);
  for (const uint32_t v : taken_variables)
    for (Relocation& r : result_.variables[v].relocations) r.symbol = moved(r.symbol);
  for (const Alias& a : m.aliases) result_.aliases.push_back({functions_[a.function], functions_[a.aliasee]});
}

Module Linker::finish() {
  for (const Variable& v : result_.variables)
    if (v.linkage == Linkage::external && (v.space == Space::global || v.space == Space::constant)) {
      input_ = shared_.find(v.name)->second.from;
      refuse(fmt::format("'{}' is declared `.extern` in {} and defined nowhere", v.name, input_),
             "link the module that defines it, too");
    }
  if (!wrong_.empty()) throw CompileError(std::move(wrong_));
  return std::move(result_);
}

}  // namespace

Module link(std::vector<LinkInput> inputs) {
  Linker linker;
  for (LinkInput& input : inputs) linker.add(std::move(input));
  return linker.finish();
}

}  // namespace imbrex::ptx
