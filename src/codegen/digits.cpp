// SPDX-License-Identifier: Apache-2.0
#include "codegen/digits.h"

#include <algorithm>

namespace imbrex::codegen {

using layout::Axis;
using layout::Layout;
using layout::Mode;
using layout::Modes;

namespace {

/// Fills in the moduli of digits on one axis: the next larger stride says where a digit ends.
bool nest(std::vector<Digit>& digits) {
  std::sort(digits.begin(), digits.end(),
            [](const Digit& a, const Digit& b) { return a.divisor < b.divisor; });
  for (size_t i = 0; i + 1 < digits.size(); ++i) {
    const int64_t next = digits[i + 1].divisor;
    if (digits[i].divisor == 0 || next % digits[i].divisor != 0) return false;
    digits[i].modulus = next / digits[i].divisor;
    if (digits[i].modulus < digits[i].extent) return false;
  }
  return digits.empty() || digits.front().divisor > 0;
}

}  // namespace

std::optional<layout::Index> IndexDigits::register_index(int64_t reg) const {
  layout::Index index(shape.size(), 0);
  for (const Digit& d : registers) {
    const int64_t digit = d.of(reg);
    if (digit >= d.extent) return std::nullopt;
    if (d.dim >= 0) index[d.dim] += digit * d.weight;
  }
  // Register 0 is the only one when no digit counts registers.
  if (registers.empty() && reg != 0) return std::nullopt;
  if (!registers.empty() && reg % registers.front().divisor != 0) return std::nullopt;
  for (size_t d = 0; d < shape.size(); ++d)
    if (index[d] >= shape[d]) return std::nullopt;
  return index;
}

int64_t IndexDigits::thread_reach(int dim) const {
  int64_t reach = 0;
  for (const Digit& d : threads)
    if (d.dim == dim) reach += (d.extent - 1) * d.weight;
  return reach;
}

std::optional<IndexDigits> index_digits(const Layout& registers) {
  IndexDigits out;
  out.shape = registers.shape();
  out.thread_extent = registers.threads();
  auto place = [&](const Mode& mode, int dim, int64_t weight) {
    if (mode.extent == 1) return;
    const Digit digit{mode.axis, dim, mode.extent, mode.stride, 0, weight};
    (mode.axis == Axis::kThread ? out.threads : out.registers).push_back(digit);
  };
  for (int dim = 0; dim < registers.rank(); ++dim) {
    const Modes& modes = registers.modes(dim);
    int64_t weight = 1;
    for (size_t i = modes.size(); i-- > 0;) {
      if (modes[i].axis != Axis::kThread && modes[i].axis != Axis::kRegister) return std::nullopt;
      place(modes[i], dim, weight);
      weight *= modes[i].extent;
    }
  }
  for (const Mode& mode : registers.replicas()) place(mode, -1, 0);
  if (!nest(out.threads) || !nest(out.registers)) return std::nullopt;
  return out;
}

std::optional<std::vector<MemoryTerm>> memory_terms(const IndexDigits& digits, const Layout& memory) {
  std::vector<MemoryTerm> terms;
  auto add = [&](const Digit& whole) {
    if (whole.dim < 0) return true;
    Digit rest = whole;
    int64_t base = 1;  // index step of the mode's own digit
    const Modes& modes = memory.modes(whole.dim);
    for (size_t i = modes.size(); i-- > 0 && rest.extent > 1;) {
      const int64_t end = base * modes[i].extent;
      if (rest.weight < end || i == 0) {
        if (rest.weight % base != 0) return false;
        Digit part = rest;
        if (rest.weight * rest.extent > end && i > 0) {  // continues in the next mode: cut it there
          if (end % rest.weight != 0) return false;
          part.extent = end / rest.weight;
          if (rest.extent % part.extent != 0) return false;
          part.modulus = part.extent;
          rest.extent /= part.extent;
          rest.divisor *= part.extent;
          if (rest.modulus) {
            if (rest.modulus % part.extent != 0) return false;
            rest.modulus /= part.extent;
          }
          rest.weight = end;
        } else {
          rest.extent = 1;
        }
        terms.push_back({part, modes[i].axis, modes[i].stride * (part.weight / base)});
      }
      base = end;
    }
    // A dimension of extent 1 has no modes, and then no digits either.
    return rest.extent == 1;
  };
  for (const Digit& d : digits.threads)
    if (!add(d)) return std::nullopt;
  for (const Digit& d : digits.registers)
    if (!add(d)) return std::nullopt;
  return terms;
}

}  // namespace imbrex::codegen
