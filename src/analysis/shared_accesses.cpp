// SPDX-License-Identifier: Apache-2.0
#include "analysis/shared_accesses.h"

#include <algorithm>
#include <optional>

#include "codegen/values/reduce.h"
#include "imbrex/inspect/banks.h"
#include "layout/queries.h"
#include "layout/registers.h"

namespace imbrex::analysis {

using layout::Axis;
using layout::Layout;

namespace {

constexpr int64_t kWarp = 32;
constexpr int64_t kRowBytes = 16;

int64_t largest_power_of_two_in(int64_t x) { return x == 0 ? int64_t{1} << 40 : x & -x; }

/// Adds one instruction for every warp of the group; address(thread) is negative for threads that take no
/// part. Threads count from the group's first.
template <class Address>
void add_instruction(SharedAccesses& to, const codegen::Group& group, BankAccess kind,
                     const Address& address) {
  const int64_t first_warp = group.begin / kWarp, last_warp = (group.begin + group.threads - 1) / kWarp;
  for (int64_t warp = first_warp; warp <= last_warp; ++warp) {
    WarpAccess access{.addresses = std::vector<int64_t>(kWarp, -1), .bytes = to.bytes, .access = kind};
    int64_t lanes = 0;
    for (int64_t lane = 0; lane < kWarp; ++lane) {
      const int64_t thread = warp * kWarp + lane - group.begin;
      if (thread < 0 || thread >= group.threads) continue;
      const int64_t at = address(thread);
      access.addresses[static_cast<size_t>(lane)] = at;
      lanes += at >= 0;
    }
    if (lanes == 0) continue;
    const BankReport report = bank_report(access);
    ++to.accesses;
    to.wavefronts += report.wavefronts;
    to.ideal += report.phases;
    to.degree = std::max(to.degree, report.degree);
    to.lane_bytes += lanes * to.bytes;
  }
}

/// Byte address of an element, swizzled.
int64_t address_of(const Layout& memory, int64_t offset, const layout::Index& element) {
  const int64_t linear = memory.linear(element)[Axis::kAddress] * memory.element_bits() / 8;
  const int64_t at = offset + linear;
  return memory.swizzle() ? memory.swizzle().apply(at) : at;
}

/// The rows of ldmatrix or stmatrix: `rows` holds for each lane that addresses one, its 16 bytes.
SharedAccesses matrix_accesses(const layout::MatrixMove& move, const Layout& memory, int64_t offset,
                               const codegen::Group& group) {
  SharedAccesses result{.bytes = kRowBytes};
  const int64_t per_row = kRowBytes * 8 / memory.element_bits();
  for (int64_t reg = 0; reg < move.rows.registers(); reg += per_row)
    add_instruction(result, group, BankAccess::kMatrix, [&](int64_t thread) {
      if (thread % kWarp >= 8 * move.matrices) return int64_t{-1};
      const std::optional<layout::Index> element = move.rows.element(thread, reg);
      return element ? address_of(memory, offset, *element) : int64_t{-1};
    });
  return result;
}

}  // namespace

SharedAccesses tile_accesses(const Layout& registers, const Layout& memory, int64_t offset, bool writes,
                             const codegen::Group& group, int arch) {
  const int bits = memory.element_bits();
  const int64_t aligned_bytes = std::min<int64_t>(kRowBytes, largest_power_of_two_in(offset));
  const bool has_matrices = group.is_whole_warps() && registers.threads() == group.threads &&
                            (!writes || (arch >= 90 && registers.replicas().empty()));
  if (has_matrices)
    for (const layout::MatrixMove& move : layout::matrix_moves(registers, bits))
      if (layout::vector_length(move.rows, memory, static_cast<int>(aligned_bytes)) * bits == kRowBytes * 8)
        return matrix_accesses(move, memory, offset, group);

  const int64_t vector = layout::vector_length(registers, memory, static_cast<int>(aligned_bytes));
  SharedAccesses result{.bytes = static_cast<int>(std::max<int64_t>(1, vector * bits / 8))};
  for (int64_t reg = 0; reg < registers.registers(); ++reg) {
    // Vectors start at the same registers in all threads.
    const std::optional<layout::Index> first = registers.element(0, reg);
    if (first && memory.linear(*first)[Axis::kAddress] % vector != 0) continue;
    add_instruction(result, group, writes ? BankAccess::kStore : BankAccess::kLoad, [&](int64_t thread) {
      const std::optional<layout::Index> element = registers.element(thread, reg);
      if (!element) return int64_t{-1};
      if (writes) {
        const layout::Coords place = registers.map(*element);
        if (place[Axis::kThread] != thread || place[Axis::kRegister] != reg) return int64_t{-1};
      }
      return address_of(memory, offset, *element);
    });
  }
  return result;
}

SharedAccesses broadcast_accesses(int bytes, const codegen::Group& group) {
  SharedAccesses result{.bytes = bytes};
  add_instruction(result, group, BankAccess::kLoad, [](int64_t) { return int64_t{0}; });
  return result;
}

ReductionAccesses reduction_accesses(const ir::Op& reduce, const codegen::Group& group) {
  ReductionAccesses result;
  const std::optional<codegen::ReductionAcrossWarps> r = codegen::reduction_across_warps(reduce, group);
  if (!r) return result;
  const Layout& from = *reduce.operands[0]->type.layout;
  const auto bytes = static_cast<int>(r->word_bytes);
  result.written.bytes = result.read.bytes = bytes;
  const std::vector<int64_t> offsets = r->partner_offsets();
  for (int64_t value = 0; value < r->values; ++value) {
    add_instruction(result.written, group, BankAccess::kStore,
                    [&](int64_t thread) { return thread * bytes; });
    for (int64_t offset : offsets)
      add_instruction(result.read, group, BankAccess::kLoad, [&](int64_t thread) {
        if (!from.element(thread, 0)) return offset;  // holds nothing: reads from the start
        int64_t first = thread;
        for (const codegen::Digit& d : r->across) first -= d.of(thread) * d.divisor;
        return first * bytes + offset;
      });
  }
  return result;
}

}  // namespace imbrex::analysis
