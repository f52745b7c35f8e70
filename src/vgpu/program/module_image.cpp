// SPDX-License-Identifier: Apache-2.0
#include "vgpu/program/module_image.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <set>

#include "core/text.h"
#include "imbrex/core/error.h"
#include "ptx/check.h"
#include "ptx/reader.h"
#include "vgpu/program/device_runtime.h"

namespace imbrex::vgpu {

namespace {

std::shared_ptr<const std::vector<std::string>> split_lines(std::string_view text) {
  auto lines = std::make_shared<std::vector<std::string>>();
  while (!text.empty()) {
    const size_t end = text.find('\n');
    lines->emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return lines;
}

}  // namespace

bool is_managed(const ptx::Variable& variable) {
  return std::ranges::find(variable.attributes, "managed") != variable.attributes.end();
}

ModuleImage::ModuleImage(std::string_view text, std::string_view name, std::shared_ptr<GlobalMemory> memory,
                         const Target& target, int gpu)
    : name_(name), memory_(std::move(memory)), target_(target), gpu_(gpu) {
  static std::atomic<uint64_t> modules{0};
  function_base_ = kFunctionBase + (modules++ << 24);
  tree_ = ptx::read(text, name, unread_);
  std::string whole;
  if (const std::string more = device_runtime_for(tree_); !more.empty()) {
    // Behind the module's own text, whose lines stay as they are.
    whole = std::string(text) + "\n" + more;
    text = whole;
    unread_.clear();
    tree_ = ptx::read(text, name, unread_);
  }
  lines_ = split_lines(text);
  std::vector<Diagnostic> wrong = ptx::check(tree_, name);
  if (!wrong.empty()) throw CompileError(std::move(wrong));
  place_variables();
}

ModuleImage::~ModuleImage() {
  for (size_t i = 0; i < addresses_.size(); ++i) {
    if (addresses_[i] == 0) continue;
    if (is_managed(tree_.variables[i]))
      memory_->free(addresses_[i]);
    else
      memory_->remove(addresses_[i]);
  }
}

void ModuleImage::place_variables() {
  addresses_.assign(tree_.variables.size(), 0);
  for (uint32_t i = 0; i < tree_.variables.size(); ++i) {
    const ptx::Variable& v = tree_.variables[i];
    const uint64_t bytes = static_cast<uint64_t>(v.size());
    const uint64_t alignment = static_cast<uint64_t>(v.alignment());
    if (is_managed(v)) {
      addresses_[i] = memory_->allocate_host_visible(bytes, "managed variable " + v.name);
    } else if (v.space == ptx::Space::global) {
      addresses_[i] = memory_->allocate(bytes, "global variable " + v.name, alignment, gpu_);
    } else if (v.space == ptx::Space::constant) {
      addresses_[i] = memory_->allocate_constant(bytes, "constant variable " + v.name, alignment);
    }
  }
  for (uint32_t i = 0; i < tree_.variables.size(); ++i)
    if (addresses_[i] != 0) initialise(i);
}

std::vector<uint32_t> ModuleImage::functions_by_address() const {
  std::set<uint32_t> found;
  const auto add = [&](ptx::Ref ref, uint32_t index) {
    if (ref == ptx::Ref::function && tree_.functions[index].has_body && !tree_.functions[index].is_entry)
      found.insert(index);
  };
  for (const ptx::Variable& v : tree_.variables)
    for (const ptx::Relocation& r : v.relocations) add(r.symbol.ref, r.symbol.index);
  for (const ptx::Function& f : tree_.functions)
    for (const ptx::Instruction& insn : f.body) {
      if (insn.op == ptx::Op::call) continue;
      for (const ptx::Operand& o : f.operands_of(insn))
        if (o.kind == ptx::OperandKind::symbol) add(o.ref, o.id);
    }
  return {found.begin(), found.end()};
}

void ModuleImage::initialise(uint32_t index) {
  const ptx::Variable& v = tree_.variables[index];
  std::byte* host = memory_->host(addresses_[index]);
  std::memset(host, 0, static_cast<size_t>(v.size()));
  const size_t given = std::min(v.initialiser.size(), static_cast<size_t>(v.size()));
  if (given != 0) std::memcpy(host, v.initialiser.data(), given);
  for (const ptx::Relocation& r : v.relocations) {
    const bool is_function = r.symbol.ref == ptx::Ref::function;
    if (!is_function && (r.symbol.ref != ptx::Ref::global || addresses_[r.symbol.index] == 0))
      throw CompileError(
          {{intern(name_), v.pos.line, ""},
           fmt::format("{}: an initialiser holds an address that the virtual GPU does not have", v.name),
           {"only addresses of functions and of .global and .const variables are modelled"},
           ""});
    const uint64_t of = is_function ? function_address(r.symbol.index) : addresses_[r.symbol.index];
    const uint64_t address = of + static_cast<uint64_t>(r.addend);
    std::memcpy(host + r.offset, &address, r.size);
  }
  memory_->mark_written(addresses_[index], static_cast<uint64_t>(v.size()));
}

}  // namespace imbrex::vgpu
