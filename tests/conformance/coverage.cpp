// SPDX-License-Identifier: Apache-2.0
#include "coverage.h"

#include <fmt/format.h>

#include <fstream>

#include "imbrex/core/error.h"
#include "ptx/insns.h"
#include "ptx/reader.h"

namespace imbrex::conformance {
namespace {

constexpr ptx::Target kTarget{90, 'a'};

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words(1);
  for (char c : text)
    if (c == ' ' || c == '|') {
      if (!words.back().empty()) words.emplace_back();
    } else if (c != '!' && c != '?') {
      words.back() += c;
    }
  if (words.back().empty()) words.pop_back();
  return words;
}

constexpr const char* kSpecialRegisters[] = {
#define PTX_SPECIAL(name, spelling, type) spelling,
#include "ptx/special_registers.def"
#undef PTX_SPECIAL
};

bool is_part_of_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.';
}

}  // namespace

Features features_used(const Kernels& kernels) {
  Features used;
  for (const MicroKernel& kernel : kernels) {
    const ptx::Module module = ptx::read(kernel.ptx, kernel.name);
    for (const ptx::Function& function : module.functions)
      for (const ptx::Instruction& insn : function.body) {
        const std::string op(ptx::name(insn.op));
        used.insert(op);
        for (ptx::Suffix suffix : insn.suffixes()) used.insert(op + " " + suffix.spelling());
      }
    for (size_t at = 0; (at = kernel.ptx.find('%', at)) != std::string::npos; ++at) {
      size_t end = at + 1;
      while (end < kernel.ptx.size() && is_part_of_name(kernel.ptx[end])) ++end;
      used.insert(kernel.ptx.substr(at, end - at));
    }
  }
  return used;
}

Features whole_instructions(const ptx::Module& module) {
  Features used;
  for (const ptx::Function& function : module.functions)
    for (const ptx::Instruction& insn : function.body) {
      std::string text(ptx::name(insn.op));
      for (ptx::Suffix suffix : insn.suffixes()) text += "." + std::string(suffix.spelling());
      used.insert(std::move(text));
    }
  return used;
}

Features features_of_target() {
  Features all;
  for (const ptx::InsnFacts& insn : ptx::all_insns()) {
    if (!meets(kTarget, insn.target)) continue;
    const std::string op(insn.mnemonic);
    all.insert(op);
    const auto add = [&](std::string_view words) {
      for (const std::string& word : words_of(words)) {
        if (word == "*" || word == "#mnk") continue;
        std::string_view needs;
        if (const auto suffix = ptx::find_suffix(word)) needs = ptx::target_of(*suffix);
        for (const ptx::LaterForm& later : ptx::later_forms())
          if (later.op == insn.op && later.when == word) needs = later.target;
        if (meets(kTarget, needs)) all.insert(op + " " + word);
      }
    };
    add(insn.modifiers);
    add(insn.types);
  }
  for (const char* name : kSpecialRegisters) all.insert(std::string("%") + name);
  return all;
}

bool NotTried::has(const std::string& feature) const {
  if (features.contains(feature)) return true;
  for (const std::string& prefix : prefixes)
    if (feature.starts_with(prefix)) return true;
  return false;
}

NotTried read_not_tried(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw Error(Diagnostic{{}, "cannot read " + path, {}, ""});
  NotTried out;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    if (line.empty() || line[0] == '#') continue;
    const size_t colon = line.find(": ");
    if (colon == std::string::npos || colon + 2 == line.size())
      throw Error(Diagnostic{{}, fmt::format("{}:{}: no reason is given", path, number), {}, ""});
    const std::string feature = line.substr(0, colon);
    if (feature.back() == '*')
      out.prefixes.insert(feature.substr(0, feature.size() - 1));
    else
      out.features.insert(feature);
  }
  return out;
}

}  // namespace imbrex::conformance
