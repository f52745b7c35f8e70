// SPDX-License-Identifier: Apache-2.0
#include "layout/queries.h"

#include <algorithm>
#include <numeric>

#include "layout/layout_data.h"

namespace imbrex::layout {
namespace {

// Row-major number of the element in every slot thread * registers() + register; -1 where there is none.
std::vector<int64_t> element_table(const Layout& layout) {
  int64_t registers = layout.registers();
  std::vector<int64_t> table(static_cast<size_t>(layout.threads() * registers), -1);
  Shape copies;
  for (const Mode& mode : layout.replicas()) copies.push_back(mode.extent);
  std::vector<int64_t> copy_slots;
  auto slot_step = [&](const Mode& mode) {
    return mode.axis == Axis::kThread     ? mode.stride * registers
           : mode.axis == Axis::kRegister ? mode.stride
                                          : 0;
  };
  Index digits(copies.size(), 0);
  do {
    int64_t slot = 0;
    for (size_t i = 0; i < digits.size(); ++i) slot += digits[i] * slot_step(layout.replicas()[i]);
    copy_slots.push_back(slot);
  } while (next_index(digits, copies));

  // The slots of each dimension's indices add up.
  std::vector<std::vector<int64_t>> slots(layout.shape().size());
  for (size_t d = 0; d < slots.size(); ++d)
    for (int64_t i = 0; i < layout.shape()[d]; ++i) {
      int64_t slot = 0, rest = i;
      const Modes& modes = layout.modes(static_cast<int>(d));
      for (size_t m = modes.size(); m-- > 0; rest /= modes[m].extent)
        slot += rest % modes[m].extent * slot_step(modes[m]);
      slots[d].push_back(slot);
    }
  Index index(layout.shape().size(), 0);
  int64_t number = 0;
  do {
    int64_t slot = 0;
    for (size_t d = 0; d < index.size(); ++d) slot += slots[d][static_cast<size_t>(index[d])];
    for (int64_t copy : copy_slots) table[static_cast<size_t>(slot + copy)] = number;
    ++number;
  } while (next_index(index, layout.shape()));
  return table;
}

void check_registers(const Layout& layout, const char* op) {
  for (Axis axis : {Axis::kAddress, Axis::kLane, Axis::kColumn, Axis::kCta})
    if (layout.uses(axis)) fail(fmt::format("{}: {} is not a register layout", op, layout.to_string()));
}

// For every element of `to`, the element of a tensor of shape `from` that broadcasts to it.
std::vector<int64_t> broadcast_numbers(const Shape& from, const Shape& to, const char* op) {
  size_t lead = to.size() - from.size();
  if (from.size() > to.size())
    fail(fmt::format("{}: {} does not broadcast to {}", op, shape_text(from), shape_text(to)));
  for (size_t d = 0; d < from.size(); ++d)
    if (from[d] != 1 && from[d] != to[lead + d])
      fail(fmt::format("{}: {} does not broadcast to {}", op, shape_text(from), shape_text(to)));
  std::vector<int64_t> numbers;
  Index index(to.size(), 0);
  do {
    int64_t number = 0;
    for (size_t d = 0; d < from.size(); ++d) number = number * from[d] + (from[d] == 1 ? 0 : index[lead + d]);
    numbers.push_back(number);
  } while (next_index(index, to));
  return numbers;
}

}  // namespace

Run contiguous_run(const Layout& layout, Axis axis) {
  Run run;
  for (int d = 0; d < layout.rank(); ++d)
    if (!layout.modes(d).empty() && layout.modes(d).back().axis == axis && layout.modes(d).back().stride == 1)
      run.dim = d;
  if (run.dim < 0) return run;

  const Modes& own = layout.modes(run.dim);
  // A run that padding would cut is shortened to what divides the extent.
  run.length = std::gcd(own.back().extent, layout.shape()[static_cast<size_t>(run.dim)]);
  int64_t alignment = 0;
  auto add = [&](const Modes& modes) {
    for (const Mode& mode : modes)
      if (mode.axis == axis && &mode != &own.back()) alignment = std::gcd(alignment, mode.stride);
  };
  for (int d = 0; d < layout.rank(); ++d) add(layout.modes(d));
  add(layout.replicas());
  if (axis == Axis::kAddress && layout.swizzle()) {
    int64_t atom = layout.swizzle().atom_bytes() * 8 / layout.element_bits();
    run.length = std::gcd(run.length, atom);
    alignment = std::gcd(alignment, atom);
  }
  if (run.length != own.back().extent) alignment = std::gcd(alignment, run.length);  // further runs follow
  run.alignment = alignment == 0 ? run.length : alignment;
  return run;
}

int64_t vector_length(const Layout& registers, const Layout& memory, int max_bytes) {
  Run in_registers = contiguous_run(registers, Axis::kRegister);
  Run in_memory = contiguous_run(memory, Axis::kAddress);
  if (registers.shape() != memory.shape() || in_registers.dim < 0 || in_registers.dim != in_memory.dim)
    return 1;
  int64_t common = std::gcd(std::gcd(in_registers.length, in_registers.alignment),
                            std::gcd(in_memory.length, in_memory.alignment));
  int64_t vector = 1;
  while (common % (2 * vector) == 0 && 2 * vector * memory.element_bits() <= 8 * max_bytes) vector *= 2;
  return vector;
}

std::optional<std::vector<int64_t>> register_map(const Layout& from, const Layout& to) {
  check_registers(from, "register map");
  check_registers(to, "register map");
  int64_t from_registers = from.registers(), to_registers = to.registers();
  std::vector<int64_t> result(static_cast<size_t>(to_registers), -1);
  std::vector<int64_t> source = broadcast_numbers(from.shape(), to.shape(), "register map");
  std::vector<int64_t> have = element_table(from), want = element_table(to);
  for (int64_t r = 0; r < to_registers; ++r) {
    std::vector<int64_t> candidates;
    bool first = true;
    for (int64_t t = 0; t < to.threads(); ++t) {
      int64_t number = want[static_cast<size_t>(t * to_registers + r)];
      if (number < 0) continue;
      if (t >= from.threads()) return std::nullopt;
      int64_t wanted = source[static_cast<size_t>(number)];
      const int64_t* held = &have[static_cast<size_t>(t * from_registers)];
      if (first) {
        for (int64_t s = 0; s < from_registers; ++s)
          if (held[s] == wanted) candidates.push_back(s);
        first = false;
      } else {
        std::erase_if(candidates, [&](int64_t s) { return held[s] != wanted; });
      }
      if (candidates.empty()) return std::nullopt;
    }
    if (!first) result[static_cast<size_t>(r)] = candidates.front();
  }
  return result;
}

Layout broadcast_source(const Layout& to, const Shape& shape) {
  broadcast_numbers(shape, to.shape(), "broadcast");
  Layout result = to;
  size_t lead = to.shape().size() - shape.size();
  for (size_t d = 0; d < shape.size(); ++d)
    if (shape[d] != to.shape()[lead + d]) result = result.reduce(static_cast<int>(lead + d), true);
  for (size_t d = 0; d < lead; ++d) result = result.reduce(0);
  return result;
}

std::optional<Layout> view_as_width(const Layout& layout, int64_t from_bits, int64_t to_bits, int dim,
                                    Axis axis) {
  if (layout.rank() == 0) return std::nullopt;
  // The least numbers of elements that have as many bits.
  const int64_t common = std::gcd(from_bits, to_bits), from = to_bits / common, to = from_bits / common;
  const size_t along = static_cast<size_t>(dim < 0 ? layout.rank() - 1 : dim);
  Shape shape = layout.shape();
  if (shape[along] % from != 0) return std::nullopt;
  shape[along] = shape[along] / from * to;
  std::vector<Modes> modes;
  for (int d = 0; d < layout.rank(); ++d) modes.push_back(layout.modes(d));
  Modes replicas = layout.replicas();
  if (from > 1) {
    if (modes[along].empty()) return std::nullopt;
    Mode& innermost = modes[along].back();
    if (innermost.axis != axis || innermost.stride != 1 || innermost.extent % from != 0) return std::nullopt;
    innermost.extent /= from;
    innermost.stride = from;
  }
  const auto scale = [&](Modes& list) {
    for (Mode& mode : list) {
      if (mode.axis != axis) continue;
      if (mode.stride % from != 0) return false;
      mode.stride = mode.stride / from * to;
    }
    return true;
  };
  for (Modes& list : modes)
    if (!scale(list)) return std::nullopt;
  if (!scale(replicas)) return std::nullopt;
  modes[along].push_back({to, 1, axis});
  const int bits = axis == Axis::kAddress ? static_cast<int>(to_bits) : layout.element_bits();
  return Layout(std::move(shape), std::move(modes), std::move(replicas), bits, layout.swizzle());
}

bool covers(const Layout& large, const Layout& small) {
  check_registers(large, "covers");
  check_registers(small, "covers");
  if (large.shape() != small.shape()) return false;
  if (large == small) return true;
  std::vector<int64_t> have = element_table(large), want = element_table(small);
  int64_t large_registers = large.registers(), small_registers = small.registers();
  for (int64_t t = 0; t < small.threads(); ++t) {
    std::vector<bool> held(static_cast<size_t>(large.size()), false);
    if (t < large.threads())
      for (int64_t r = 0; r < large_registers; ++r)
        if (int64_t number = have[static_cast<size_t>(t * large_registers + r)]; number >= 0)
          held[static_cast<size_t>(number)] = true;
    for (int64_t r = 0; r < small_registers; ++r)
      if (int64_t number = want[static_cast<size_t>(t * small_registers + r)];
          number >= 0 && !held[static_cast<size_t>(number)])
        return false;
  }
  return true;
}

}  // namespace imbrex::layout
