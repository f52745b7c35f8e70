// SPDX-License-Identifier: Apache-2.0
// A kernel that mutants are derived from: compiled for one small problem, and run on the virtual GPU.
#pragma once

#include <string>
#include <type_traits>
#include <vector>

#include "codegen/compiled_kernel.h"
#include "imbrex/runtime/kernel.h"
#include "imbrex/vgpu/virtual_gpu.h"
#include "ptx/ptx.h"

namespace imbrex::mutants {

/// A tensor that the kernel is given: random numbers, given ones, poisoned memory for results, or zeros. What it leaves in
/// the last two is compared, unless nobody is to read it.
struct TensorArgument {
  DataType dtype;
  std::vector<int64_t> shape;
  bool is_output = false, is_zeroed = false, is_compared = is_output;
  std::vector<int64_t> values = {};  ///< of an input; without them it is random
  bool is_symmetric = false;         ///< one on each rank; the kernel is given the place of rank 0's,
  int64_t bytes_per_rank = 0;        ///< so much further for each rank that it is launched on
  TensorArgument on_all(int64_t further_bytes = 0) && {
    is_symmetric = true;
    bytes_per_rank = further_bytes;
    return std::move(*this);
  }
  TensorArgument unread() && {
    is_compared = false;
    return std::move(*this);
  }
};
inline TensorArgument in(DataType dtype, std::vector<int64_t> shape) { return {dtype, std::move(shape)}; }
inline TensorArgument numbers(DataType dtype, std::vector<int64_t> values) {
  const auto count = static_cast<int64_t>(values.size());
  return {dtype, {count}, false, false, false, std::move(values)};
}
inline TensorArgument out(DataType dtype, std::vector<int64_t> shape) {
  return {dtype, std::move(shape), true};
}
/// Semaphores, counters.
inline TensorArgument zeroed(DataType dtype, std::vector<int64_t> shape) {
  return {dtype, std::move(shape), false, true, true};
}

/// The number of the rank on which it is launched.
struct RankNumber {};
/// The rank's own part of a symmetric tensor that is the `tensor`-th of the arguments, from 0.
struct OwnPart {
  int tensor;
  DataType dtype;
  std::vector<int64_t> shape;
};
/// Of the virtual nodes on which subjects of several ranks run.
int64_t rank_stride_bytes();

struct Subject {
  std::string name;  ///< "V3"
  codegen::CompiledKernel kernel;
  ptx::Module module;  ///< kernel.ptx as a tree
  int num_sms = 1;
  int ranks = 1;  ///< more: of a virtual node, all of which launch it, twice
  /// Rules whose faults only change numbers here: accesses beside their place that are properly ordered.
  std::vector<std::string> left_out = {};

  struct Value {
    int64_t number = 0;
    int tensor = -1;  ///< index into tensors, or -1: a number
    bool is_rank = false, is_own = false;
  };
  std::vector<Value> arguments;  ///< of the launch, constants left out
  std::vector<TensorArgument> tensors;
};

/// What came of running a kernel once.
struct Outcome {
  std::vector<vgpu::Finding> findings, notes;
  std::string refused;  ///< the message, where the kernel could not even be loaded or launched
  std::vector<std::byte> results;
  bool is_clean() const { return findings.empty() && refused.empty(); }
};

/// Runs the subject's problem with `kernel`, which is its own or a mutant of it.
Outcome run(const Subject& subject, const codegen::CompiledKernel& kernel, uint64_t seed,
            vgpu::TensorMath math = vgpu::TensorMath::kFast,
            vgpu::Strictness strictness = vgpu::Strictness::kStrict);

/// The same on the first CUDA GPU, where nothing is found but the driver's error.
Outcome run_on_cuda(const Subject& subject, const codegen::CompiledKernel& kernel);

namespace detail {
Subject make_subject(std::string name, std::shared_ptr<ir::Function> function);

template <class T>
decltype(auto) for_tracing(const T& argument) {
  if constexpr (std::is_same_v<T, TensorArgument> || std::is_same_v<T, OwnPart>)
    return DeviceTensor::shape_only(argument.dtype, argument.shape);
  else if constexpr (std::is_same_v<T, RankNumber>)
    return 0;
  else
    return argument;
}
template <class P, class T>
void add_argument(Subject& subject, const T& argument) {
  if constexpr (imbrex::detail::Parameter<P>::kInfo.kind == ParameterKind::kConstant) {
    return;
  } else if constexpr (std::is_same_v<T, TensorArgument>) {
    subject.arguments.push_back({0, static_cast<int>(subject.tensors.size())});
    subject.tensors.push_back(argument);
  } else if constexpr (std::is_same_v<T, OwnPart>) {
    subject.arguments.push_back({.tensor = argument.tensor, .is_own = true});
  } else if constexpr (std::is_same_v<T, RankNumber>) {
    subject.arguments.push_back({.is_rank = true});
  } else {
    subject.arguments.push_back({static_cast<int64_t>(argument), -1});
  }
}
template <class... Params, class... Args>
void add_arguments(Subject& subject, ParameterList<Params...>, const Args&... arguments) {
  (add_argument<Params>(subject, arguments), ...);
}
/// What a launch of a kernel takes, structs resolved into their members.
template <class K, class... Params>
auto parameters_of(void (K::*)(Params...) const) -> imbrex::detail::Flat<ParameterList<Params...>>::List;
}  // namespace detail

/// Compiles `kernel` for these arguments: numbers, and in(...) and out(...) tensors.
template <class K, class... Args>
Subject make_subject(std::string name, int num_sms, const K& kernel, const Args&... arguments) {
  Kernel<K> ready(kernel, std::nullopt);
  Subject subject = detail::make_subject(std::move(name), ready.trace(detail::for_tracing(arguments)...));
  subject.num_sms = num_sms;
  detail::add_arguments(subject, decltype(detail::parameters_of(&K::operator()))(), arguments...);
  return subject;
}

/// The subjects of the suite: small problems of every kernel that synchronises, in which every ring goes
/// round, every stage is used again, and persistent CTAs take over several tiles.
const std::vector<Subject>& subjects();
/// Those of them that are no products of the ladders, those that are attention, products of groups or with results that need
/// more than their own elements, and those that work row by row.
std::vector<Subject> language_subjects();
std::vector<Subject> attention_subjects();
std::vector<Subject> fused_subjects();
std::vector<Subject> row_subjects();
/// Kernels of several ranks, for the rules about signals.
std::vector<Subject> rank_subjects();

}  // namespace imbrex::mutants
