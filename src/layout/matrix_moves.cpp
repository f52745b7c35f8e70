// SPDX-License-Identifier: Apache-2.0
// Which register layouts ldmatrix and stmatrix move, and what their lanes address then.
//
// A lane is five bits. The lower two (q) choose 4 of the 16 bytes of a matrix row, the upper three (g) the
// row; with .trans, q and the half of the register choose the row, and g the element. So the layout must
// spend exactly those bits on the matrix; digits of further warps and registers may be anything. Two of the
// register digits, if there are that many, tell the matrices of one instruction apart: for addresses they
// become the upper bits of the lane.
#include <algorithm>
#include <bit>
#include <map>

#include "layout/layout_data.h"
#include "layout/registers.h"

namespace imbrex::layout {
namespace {

constexpr int64_t kWarp = 32;
constexpr int64_t kRowBits = 128;

bool is_lane_mode(const Mode& mode) { return mode.axis == Axis::kThread && mode.stride < kWarp; }

/// The modes with those of lanes taken apart bit by bit; nothing when a lane digit is not a bit field.
std::optional<Modes> with_lane_bits(const Modes& modes) {
  Modes out;
  for (Mode mode : modes) {
    if (!is_lane_mode(mode)) {
      out.push_back(mode);
      continue;
    }
    if (mode.stride < 1 || !std::has_single_bit(static_cast<uint64_t>(mode.stride))) return std::nullopt;
    Modes bits;  // innermost first
    while (mode.extent > 1 && mode.stride < kWarp) {
      if (mode.extent % 2 != 0) return std::nullopt;
      bits.push_back({2, mode.stride, Axis::kThread});
      mode.extent /= 2;
      mode.stride *= 2;
    }
    if (mode.extent > 1) out.push_back(mode);  // of warps
    out.insert(out.end(), bits.rbegin(), bits.rend());
  }
  return out;
}

/// Removes `end` from the back of `modes`; false when something else stands there.
bool remove_end(Modes& modes, const Modes& end) {
  if (modes.size() < end.size() || !std::equal(end.rbegin(), end.rend(), modes.rbegin())) return false;
  modes.resize(modes.size() - end.size());
  return true;
}

/// Takes factors of two out of the innermost register digits, for the bits of lanes that address further
/// matrices. Returns how many matrices there are then.
int deal_matrices(std::vector<Modes>& dims) {
  int matrices = 1;
  while (matrices < 4) {
    Modes* in = nullptr;
    size_t at = 0;
    for (Modes& modes : dims)
      for (size_t i = 0; i < modes.size(); ++i) {
        const Mode& mode = modes[i];
        if (mode.axis != Axis::kRegister || mode.extent % 2 != 0) continue;
        if (in && (*in)[at].stride <= mode.stride) continue;
        in = &modes;
        at = i;
      }
    if (!in) break;
    Mode& digit = (*in)[at];
    const Mode lane{2, 8 * matrices, Axis::kThread};
    digit.extent /= 2;
    digit.stride *= 2;
    in->insert(in->begin() + static_cast<int64_t>(at) + 1, lane);
    if ((*in)[at].extent == 1) in->erase(in->begin() + static_cast<int64_t>(at));
    matrices *= 2;
  }
  return matrices;
}

/// Numbers the register digits anew, densely from `first`, in the order they had.
void renumber(std::vector<Modes>& dims, int64_t first) {
  std::map<int64_t, Mode*> by_stride;
  for (Modes& modes : dims)
    for (Mode& mode : modes)
      if (mode.axis == Axis::kRegister) by_stride.emplace(mode.stride, &mode);
  for (auto& [stride, mode] : by_stride) {
    mode->stride = first;
    first *= mode->extent;
  }
}

/// One of the two ways, the 16 bytes of a row along `dim`.
std::optional<MatrixMove> move_along(const Layout& registers, std::vector<Modes> dims, size_t dim, int bits,
                                     bool transposed) {
  const int64_t per_register = 32 / bits, per_row = kRowBits / bits;
  const Mode unit{per_register, 1, Axis::kRegister};
  const auto lane = [](int64_t stride) { return Mode{2, stride, Axis::kThread}; };
  Modes row = transposed ? Modes{lane(16), lane(8), lane(4)} : Modes{lane(2), lane(1)};
  if (!transposed && per_register > 1) row.push_back(unit);
  if (!remove_end(dims[dim], row)) return std::nullopt;

  // What is left of the lane (and, transposed, of the register) chooses the row of the matrix.
  int64_t row_bits = 0;
  for (Modes& modes : dims)
    for (Mode& mode : modes) {
      if (is_lane_mode(mode)) {
        const int64_t bit = transposed ? mode.stride * 2 : mode.stride / 4;
        if (bit < 1 || bit > 4 || (row_bits & bit)) return std::nullopt;
        row_bits |= bit;
        mode.stride = bit;
      } else if (transposed && mode == unit) {
        row_bits |= 1;
        mode = lane(1);
      } else if (mode.axis == Axis::kRegister && mode.stride % per_register != 0) {
        return std::nullopt;
      }
    }
  if (row_bits != 7) return std::nullopt;

  MatrixMove move;
  move.transposed = transposed;
  move.matrices = deal_matrices(dims);
  renumber(dims, per_row);
  dims[dim].push_back({per_row, 1, Axis::kRegister});
  Modes replicas = registers.replicas();
  if (move.matrices < 4) replicas.push_back({4 / move.matrices, 8 * move.matrices, Axis::kThread});
  move.rows = Layout(registers.shape(), std::move(dims), std::move(replicas));
  return move;
}

}  // namespace

std::vector<MatrixMove> matrix_moves(const Layout& registers, int element_bits) {
  if (element_bits != 8 && element_bits != 16 && element_bits != 32) return {};
  if (registers.is_padded() || registers.threads() % kWarp != 0) return {};
  for (const Mode& mode : registers.replicas())
    if (mode.axis != Axis::kThread || is_lane_mode(mode)) return {};
  std::vector<Modes> dims;
  for (int d = 0; d < registers.rank(); ++d) {
    std::optional<Modes> modes = with_lane_bits(registers.modes(d));
    if (!modes) return {};
    dims.push_back(*std::move(modes));
  }
  std::vector<MatrixMove> moves;
  for (bool transposed : {false, true}) {
    if (transposed && element_bits != 16) continue;
    for (size_t d = 0; d < dims.size(); ++d)
      if (std::optional<MatrixMove> move = move_along(registers, dims, d, element_bits, transposed))
        moves.push_back(*std::move(move));
  }
  return moves;
}

}  // namespace imbrex::layout
