// SPDX-License-Identifier: Apache-2.0
#include "mutants/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace imbrex::mutants {

namespace {

/// A line of a kernel's source, without the spaces around it; "" where it cannot be read.
std::string source_line(const std::string& file, uint32_t line) {
  static std::map<std::string, std::vector<std::string>> files;  // derivation runs in one thread
  auto [found, is_new] = files.try_emplace(file);
  if (is_new) {
    // Paths are as the compiler saw them: relative to the build folder.
    std::ifstream in(std::filesystem::path(IMBREX_BINARY_DIR) / file);
    for (std::string text; std::getline(in, text);) found->second.push_back(text);
  }
  if (line == 0 || line > found->second.size()) return "";
  std::string text = found->second[line - 1];
  if (const size_t comment = text.find("  //"); comment != std::string::npos) text.resize(comment);
  const size_t begin = text.find_first_not_of(' '), end = text.find_last_not_of(' ');
  return begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
}

}  // namespace

std::string Mutant::name() const { return fmt::format("{} {}: {} #{}", subject->name, rule, at, occurrence); }

void Places::add(size_t i, const std::function<void(Edit&)>& change) {
  Mutant mutant;
  mutant.subject = subject_;
  mutant.rule = rule_;
  if (const uint32_t loc = f.body[i].loc; loc != ptx::Instruction::kNone) {
    std::string path;
    for (const ptx::File& file : original.module().files)
      if (file.index == f.locs[loc].file) path = file.path;
    mutant.at = source_line(path, f.locs[loc].line);
    mutant.place = fmt::format("{}:{}", std::filesystem::path(path).filename().string(), f.locs[loc].line);
  }
  mutant.occurrence = ++seen_[mutant.at];
  Edit edit = original;
  change(edit);
  mutant.kernel = edit.finish();
  mutants_->push_back(std::move(mutant));
}

void Places::add_unzeroed(size_t i, int tensor) {
  add(i, [](Edit&) {});
  mutants_->back().unzeroed = tensor;
}

std::vector<Rule> all_rules() {
  std::vector<Rule> all;
  for (const std::span<const Rule> part :
       {wait_rules(), arrival_rules(), commit_rules(), order_rules(), copy_rules(), tensor_memory_rules(),
        descriptor_rules(), role_rules(), cluster_rules(), wgmma_rules(), turn_rules()})
    all.insert(all.end(), part.begin(), part.end());
  return all;
}

std::vector<Mutant> mutants_of(const Subject& subject) { return mutants_of(subject, all_rules()); }

std::vector<Mutant> mutants_of(const Subject& subject, std::span<const Rule> rules) {
  std::vector<Mutant> mutants;
  for (const Rule& rule : rules) {
    if (std::find(subject.left_out.begin(), subject.left_out.end(), rule.name) != subject.left_out.end())
      continue;
    Places places(subject, rule.name, mutants);
    rule.derive(places);
  }
  return mutants;
}

}  // namespace imbrex::mutants
