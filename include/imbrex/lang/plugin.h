// SPDX-License-Identifier: Apache-2.0
// A kernel compiled apart from the program that traces it: what a shared library gives to who loads it. Python's
// imbrex.Kernel compiles such a library from a source file.
//
//   #include "my_kernel.cpp"
//   #include "imbrex/lang/plugin.h"
//   IMBREX_PLUGIN(MyKernel, imbrex::detail::member<&MyKernel::block_m>())
//
// Host and library are built from the headers of the same version, which kVersion checks.
#pragma once

#include <memory>
#include <vector>

#include "imbrex/lang/kernel_parameters.h"
#include "imbrex/lang/tuning_space.h"

namespace imbrex {

/// A kernel type, with what is needed to make and to trace instances of it.
struct KernelPlugin {
  static constexpr int kVersion = 1;  ///< of this structure
  int version = kVersion;
  const KernelEntry* entry = nullptr;
  const char* target = "sm_80";  ///< K::target, where the kernel has one
  TuningSpace space;
  std::vector<detail::Member> members;  ///< those that IMBREX_PLUGIN was given
  std::shared_ptr<void> (*make)() = nullptr;
};

template <class K>
KernelPlugin kernel_plugin(std::vector<detail::Member> members) {
  KernelPlugin plugin;
  plugin.entry = &kernel_entry<K>();
  if constexpr (requires { K::target; }) plugin.target = K::target;
  if constexpr (requires { K::space(); }) plugin.space = K::space();
  plugin.members = std::move(members);
  plugin.make = [] { return std::static_pointer_cast<void>(std::make_shared<K>()); };
  return plugin;
}

}  // namespace imbrex

/// Makes this library one that holds kernel K; the rest are members of it, as above.
#define IMBREX_PLUGIN(K, ...)                                                                            \
  extern "C" __attribute__((visibility("default"))) const imbrex::KernelPlugin* imbrex_kernel_plugin() { \
    static const imbrex::KernelPlugin plugin = imbrex::kernel_plugin<K>({__VA_ARGS__});                  \
    return &plugin;                                                                                      \
  }
