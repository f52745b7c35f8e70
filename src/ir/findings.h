// SPDX-License-Identifier: Apache-2.0
// What the verifier's rules share: how a finding is worded, and the rules, one function a family.
#pragma once

#include <string>
#include <vector>

#include "imbrex/core/error.h"
#include "ir/ir.h"

namespace imbrex::ir {

/// Collects findings about ops.
class Findings {
 public:
  /// "mnemonic: fact", with the type of every operand and result and where each was made.
  void add(const Op& op, const std::string& fact, const std::string& help = "");
  /// A finding that belongs to no op.
  void add(Diagnostic diagnostic) { diagnostics_.push_back(std::move(diagnostic)); }

  bool empty() const { return diagnostics_.empty(); }
  std::vector<Diagnostic> take() { return std::move(diagnostics_); }

 private:
  std::vector<Diagnostic> diagnostics_;
};

/// The line that introduces a value in a message: "a    shared<float16, [128, 64]>  made at gemm.cpp:31".
std::string value_fact(std::string_view role, const Value& value);

/// A tile of `tile` dimensions laid over a tensor of type `global` along the op's `dims`, starting at
/// `offsets` numbers. True when it fits.
bool verify_tile(const Op& op, const Type& global, const std::vector<int64_t>& tile, size_t offsets,
                 Findings& out);
/// Operands 0 and 1 are the factors of a matrix product that operand 2, called `sum` in messages, can hold. `times_n`: b has so
/// many times fewer columns than the product. True when it is so.
bool verify_product(const Op& op, std::string_view sum, Findings& out, int64_t times_n = 1);
/// Both hold elements of one type.
void expect_same_dtype(const Op& op, const Type& a, std::string_view a_role, const Type& b,
                       std::string_view b_role, Findings& out);

// The rules that rows of ops.def name, of one op whose operand kinds, attribute kinds and regions are known to be
// right.
inline void verify_row(const Op&, Findings&) {}  // the row says everything
void verify_arithmetic(const Op& op, Findings& out);
void verify_scalars(const Op& op, Findings& out);  // constants, variables, indices of the launch
void verify_control(const Op& op, Findings& out);  // control flow and scopes
void verify_views(const Op& op, Findings& out);
void verify_registers(const Op& op, Findings& out);  // ops on register tensors
void verify_memory(const Op& op, Findings& out);     // global and shared memory
/// The attributes that hint at what caches keep.
void verify_cache_hints(const Op& op, Findings& out);
void verify_indexed(const Op& op, Findings& out);  // accesses at places that are data, atomics
/// One index for each dimension of `shape`, operands from 1 on; those known must be inside.
void verify_item_index(const Op& op, const std::vector<int64_t>& shape, Findings& out);
void verify_mma_sync(const Op& op, Findings& out);
void verify_mma_scaled(const Op& op, Findings& out);
void verify_mbarrier(const Op& op, Findings& out);
void verify_cluster(const Op& op, Findings& out);
/// Operand `at`, where the op has it: the rank of a CTA.
void verify_rank(const Op& op, size_t at, Findings& out);
void verify_tma(const Op& op, Findings& out);
void verify_tcgen05(const Op& op, Findings& out);
void verify_wgmma(const Op& op, Findings& out);  // and setmaxnreg

}  // namespace imbrex::ir
