// SPDX-License-Identifier: Apache-2.0
// Compiles kernels given as IR text, assembles them, runs them on the virtual GPU.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include "codegen/codegen.h"
#include "imbrex/vgpu/virtual_gpu.h"

namespace imbrex::codegen::testing {

/// Elements of one type, as they lie in memory; values go in and out as doubles (integers of 64 bits as far
/// as doubles hold them).
class Buffer {
 public:
  Buffer(DataType type, int64_t elements) : type_(type), bytes_(elements * type.bytes()) {}
  DataType type() const { return type_; }
  int64_t size() const { return static_cast<int64_t>(bytes_.size()) / type_.bytes(); }
  double get(int64_t i) const;
  /// Rounds as a conversion does.
  void set(int64_t i, double value);
  void fill(double value) {
    for (int64_t i = 0; i < size(); ++i) set(i, value);
  }
  std::vector<std::byte>& bytes() { return bytes_; }

 private:
  DataType type_;
  std::vector<std::byte> bytes_;
};

/// The value a buffer of this type would give back.
double rounded(DataType type, double value);
/// Small numbers that the type holds exactly, so that sums and products stay exact where the type allows.
double random_value(DataType type, std::mt19937& random);
void fill_random(Buffer& buffer, std::mt19937& random);

using Argument = std::variant<int64_t, Buffer*>;

/// Parses, runs every pass, generates. Errors come out as exceptions.
CompiledKernel compile(const std::string& ir, const Options& options = {});
/// The same for IR that carries layouts and offsets already: no pass runs.
CompiledKernel compile_as_is(const std::string& ir);
/// The message of the CompileError that compiling gives, "" when there is none.
std::string compile_error(const std::string& ir);

/// Runs the kernel with every checker on; buffers come back. A test failure unless the report is clean.
vgpu::Report run(const CompiledKernel& kernel, const std::vector<Argument>& arguments, uint64_t seed = 0);

/// Assembles the PTX with ptxas for its target; says so, once, where there is no ptxas.
void expect_assembles(const CompiledKernel& kernel);

/// `text` with every "{name}" replaced.
std::string fill(std::string text, std::initializer_list<std::pair<std::string, std::string>> values);

}  // namespace imbrex::codegen::testing
