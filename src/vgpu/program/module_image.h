// SPDX-License-Identifier: Apache-2.0
// A loaded module: the PTX tree, and its .global and .const variables in device memory.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ptx/ptx.h"
#include "ptx/reader.h"
#include "vgpu/memory/memory.h"
#include "vgpu/program/launch.h"

namespace imbrex::vgpu {

/// `__managed__` in CUDA: memory that the host may touch as well, at the same address.
bool is_managed(const ptx::Variable& variable);

class ModuleImage {
 public:
  /// Reads and checks the text and places its variables. `name` stands for the text in messages.
  ModuleImage(std::string_view text, std::string_view name, std::shared_ptr<GlobalMemory> memory,
              const Target& target, int gpu = 0);
  ~ModuleImage();

  const ptx::Module& tree() const { return tree_; }
  /// What is wrong in functions that could not be read.
  const ptx::UnreadBodies& unread() const { return unread_; }
  const std::string& name() const { return name_; }
  const Target& target() const { return target_; }
  /// The device among those that share its memory.
  int gpu() const { return gpu_; }
  const std::shared_ptr<const std::vector<std::string>>& lines() const { return lines_; }
  /// Where a .global or .const variable is.
  uint64_t variable_address(uint32_t index) const { return addresses_[index]; }
  /// The address that stands for a function; no two modules share one, and no memory is there.
  uint64_t function_address(uint32_t index) const { return function_base_ + 16 * uint64_t{index}; }
  /// Functions with a body whose address something of the module takes: what calls through pointers may reach.
  std::vector<uint32_t> functions_by_address() const;

 private:
  void place_variables();
  void initialise(uint32_t index);

  std::string name_;
  ptx::Module tree_;
  ptx::UnreadBodies unread_;
  std::shared_ptr<GlobalMemory> memory_;
  const Target& target_;
  int gpu_;
  std::shared_ptr<const std::vector<std::string>> lines_;
  std::vector<uint64_t> addresses_;
  uint64_t function_base_;
};

}  // namespace imbrex::vgpu
