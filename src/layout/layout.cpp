// SPDX-License-Identifier: Apache-2.0
// Construction and canonical form, the mapping and its inverse, products.
#include <algorithm>
#include <numeric>
#include <set>

#include "layout/layout_data.h"

namespace imbrex::layout {

std::string_view axis_name(Axis axis) {
  constexpr std::string_view kNames[kAxisCount] = {"thread", "register", "address", "lane", "column", "cta"};
  return kNames[static_cast<size_t>(axis)];
}

std::string shape_text(std::span<const int64_t> shape) {
  return shape.empty() ? "scalar" : fmt::format("{}", fmt::join(shape, "x"));
}

void fail(std::string message, std::vector<std::string> facts, std::string help) {
  throw CompileError(Diagnostic{{}, "layout: " + std::move(message), std::move(facts), std::move(help)});
}

Modes merged(const Modes& modes) {
  Modes result;
  for (Mode mode : modes) {
    if (mode.extent == 1) continue;
    if (mode.stride == 0) mode.axis = Axis::kThread;
    if (!result.empty() && result.back().axis == mode.axis &&
        result.back().stride == mode.extent * mode.stride) {
      result.back() = {result.back().extent * mode.extent, mode.stride, mode.axis};
    } else {
      result.push_back(mode);
    }
  }
  return result;
}

bool next_index(Index& index, std::span<const int64_t> shape) {
  for (size_t d = shape.size(); d-- > 0;) {
    if (++index[d] < shape[d]) return true;
    index[d] = 0;
  }
  return false;
}

std::vector<Modes> dense_modes(const Shape& shape, Axis axis, bool first_fastest) {
  std::vector<Modes> modes(shape.size());
  int64_t stride = 1;
  for (size_t i = 0; i < shape.size(); ++i) {
    size_t d = first_fastest ? i : shape.size() - 1 - i;
    modes[d] = {{shape[d], stride, axis}};
    stride *= shape[d];
  }
  return modes;
}

namespace {

// The outermost mode is cut to what the shape needs, so that padding has one spelling.
Modes trimmed(Modes modes, int64_t shape) {
  while (!modes.empty()) {
    int64_t inner = product(modes) / modes.front().extent;
    modes.front().extent = ceil_div(shape, inner);
    if (modes.front().extent > 1) break;
    modes.erase(modes.begin());
  }
  return modes;
}

// The modes of all dimensions and the replicas, with the dimension each belongs to (-1: replica).
struct PlacedMode {
  Mode mode;
  int dim;
  int64_t weight;  // what one step of the digit adds to the index of the dimension
};

std::vector<PlacedMode> modes_on(const Layout& layout, Axis axis) {
  std::vector<PlacedMode> result;
  for (int d = 0; d < layout.rank(); ++d) {
    int64_t weight = 1;
    const Modes& modes = layout.modes(d);
    for (size_t i = modes.size(); i-- > 0; weight *= modes[i].extent)
      if (modes[i].axis == axis && modes[i].stride != 0) result.push_back({modes[i], d, weight});
  }
  for (const Mode& mode : layout.replicas())
    if (mode.axis == axis) result.push_back({mode, -1, 0});
  std::stable_sort(result.begin(), result.end(),
                   [](const PlacedMode& a, const PlacedMode& b) { return a.mode.stride > b.mode.stride; });
  return result;
}

// True when a coordinate can be taken apart largest stride first: every stride exceeds all that lies below
// it.
bool is_greedy(const std::vector<PlacedMode>& modes) {
  int64_t below = 0;
  for (size_t i = modes.size(); i-- > 0;) {
    if (modes[i].mode.stride <= below) return false;
    below += modes[i].mode.stride * (modes[i].mode.extent - 1);
  }
  return true;
}

bool has_zero_stride(const Layout& layout) {
  for (int d = 0; d < layout.rank(); ++d)
    for (const Mode& mode : layout.modes(d))
      if (mode.stride == 0) return true;
  return false;
}

void add_scaled(Modes& to, const Modes& from, const Layout& unit) {
  for (Mode mode : from) {
    mode.stride *= unit.extent(mode.axis);
    to.push_back(mode);
  }
}

int joint_bits(const Layout& a, const Layout& b, const char* op) {
  if (a.element_bits() && b.element_bits() && a.element_bits() != b.element_bits())
    fail(fmt::format("{}: element sizes differ, {} and {} bits", op, a.element_bits(), b.element_bits()));
  return std::max(a.element_bits(), b.element_bits());
}

Swizzle joint_swizzle(const Layout& a, const Layout& b, const char* op) {
  if (a.swizzle() && b.swizzle() && a.swizzle() != b.swizzle())
    fail(fmt::format("{}: swizzles differ, {} and {}", op, a.swizzle().name(), b.swizzle().name()));
  return a.swizzle() ? a.swizzle() : b.swizzle();
}

}  // namespace

Layout::Layout() {
  static const std::shared_ptr<const Data> kScalar = std::make_shared<Data>();
  data_ = kScalar;
}

Layout::Layout(Shape shape, std::vector<Modes> modes, Modes replicas, int element_bits, Swizzle swizzle) {
  if (shape.size() != modes.size())
    fail(fmt::format("{} dimensions but modes for {}", shape.size(), modes.size()));
  // On-chip tensors are far smaller; the bound keeps arithmetic on layouts and their products from
  // overflowing.
  constexpr int64_t kMaxSlots = int64_t{1} << 31;
  int64_t slots = 1;
  auto check = [&](const Modes& list) {
    for (const Mode& mode : list) {
      if (mode.extent < 1 || mode.stride < 0)
        fail(fmt::format("mode of extent {} and stride {}", mode.extent, mode.stride));
      if (mode.extent > kMaxSlots / slots || mode.stride > kMaxSlots / mode.extent)
        fail(fmt::format("mode of extent {} and stride {}: too large", mode.extent, mode.stride));
      slots *= mode.extent;
    }
  };
  for (size_t d = 0; d < shape.size(); ++d) {
    check(modes[d]);
    if (shape[d] < 1)
      fail(fmt::format("extent {} in dimension {} of shape {}", shape[d], d, shape_text(shape)));
    if (product(modes[d]) < shape[d])
      fail(fmt::format("modes of dimension {} reach {} of {} elements", d, product(modes[d]), shape[d]));
    modes[d] = trimmed(merged(modes[d]), shape[d]);
  }
  check(replicas);
  std::erase_if(replicas, [](const Mode& mode) { return mode.stride == 0; });
  std::sort(replicas.begin(), replicas.end(), [](const Mode& a, const Mode& b) {
    return a.axis != b.axis ? a.axis < b.axis : a.stride > b.stride;
  });
  if (element_bits < 0 || (swizzle && (element_bits == 0 || swizzle.atom_bytes() * 8 % element_bits != 0)))
    fail(fmt::format("elements of {} bits with swizzle {}", element_bits, swizzle.name()));
  data_ = std::make_shared<Data>(
      Data{std::move(shape), std::move(modes), merged(replicas), element_bits, swizzle});
}

const Shape& Layout::shape() const { return data_->shape; }
int64_t Layout::size() const { return product(data_->shape); }
const Modes& Layout::modes(int dim) const { return data_->modes[static_cast<size_t>(dim)]; }
const Modes& Layout::replicas() const { return data_->replicas; }
Swizzle Layout::swizzle() const { return data_->swizzle; }
int Layout::element_bits() const { return data_->element_bits; }

bool Layout::uses(Axis axis) const { return extent(axis) > 1; }

int64_t Layout::extent(Axis axis) const {
  int64_t largest = 0;
  auto add = [&](const Modes& modes) {
    for (const Mode& mode : modes)
      if (mode.axis == axis) largest += mode.stride * (mode.extent - 1);
  };
  for (const Modes& modes : data_->modes) add(modes);
  add(data_->replicas);
  return largest + 1;
}

int64_t Layout::bytes() const {
  if (element_bits() == 0 && uses(Axis::kAddress)) fail("bytes of elements of unknown size");
  int64_t bytes = ceil_div(extent(Axis::kAddress) * element_bits(), 8);
  return swizzle() ? ceil_div(bytes, swizzle().span_bytes()) * swizzle().span_bytes() : bytes;
}

int64_t Layout::columns() const {
  if (element_bits() == 0 && uses(Axis::kColumn)) fail("columns of elements of unknown size");
  return ceil_div(extent(Axis::kColumn) * element_bits(), 32);
}
int64_t Layout::copies() const { return product(data_->replicas); }

bool Layout::is_padded() const {
  for (int d = 0; d < rank(); ++d)
    if (product(modes(d)) != shape()[static_cast<size_t>(d)]) return true;
  return false;
}

Coords Layout::linear(std::span<const int64_t> index) const {
  if (static_cast<int>(index.size()) != rank())
    fail(fmt::format("index of rank {} into shape {}", index.size(), shape_text(shape())));
  Coords coords;
  for (size_t d = 0; d < index.size(); ++d) {
    int64_t rest = index[d];
    if (rest < 0 || rest >= shape()[d])
      fail(fmt::format("index {} outside 0...{} in dimension {}", rest, shape()[d] - 1, d));
    const Modes& modes = data_->modes[d];
    for (size_t i = modes.size(); i-- > 0;) {
      coords[modes[i].axis] += rest % modes[i].extent * modes[i].stride;
      rest /= modes[i].extent;
    }
  }
  return coords;
}

namespace {

int64_t swizzled_element(const Layout& layout, int64_t element) {
  if (!layout.swizzle()) return element;
  int64_t bits = element * layout.element_bits();
  return (layout.swizzle().apply(bits / 8) * 8 + bits % 8) / layout.element_bits();
}

}  // namespace

Coords Layout::map(std::span<const int64_t> index, const Coords& base) const {
  Coords coords = linear(index) + base;
  coords[Axis::kAddress] = swizzled_element(*this, coords[Axis::kAddress]);
  return coords;
}

std::vector<Coords> Layout::places(std::span<const int64_t> index) const {
  std::vector<Coords> result;
  Shape extents;
  for (const Mode& mode : replicas()) extents.push_back(mode.extent);
  Index digits(extents.size(), 0);
  do {
    Coords replica;
    for (size_t i = 0; i < digits.size(); ++i)
      replica[replicas()[i].axis] += digits[i] * replicas()[i].stride;
    result.push_back(map(index, replica));
  } while (next_index(digits, extents));
  return result;
}

std::optional<Index> Layout::inverse(const Coords& place) const {
  Coords rest = place;
  rest[Axis::kAddress] = swizzled_element(*this, rest[Axis::kAddress]);
  Index index(static_cast<size_t>(rank()), 0);
  for (Axis axis : kAxes) {
    std::vector<PlacedMode> modes = modes_on(*this, axis);
    if (!is_greedy(modes)) {  // interleaved strides: rare enough to search
      Index probe(static_cast<size_t>(rank()), 0);
      do {
        for (const Coords& candidate : places(probe))
          if (candidate == place) return probe;
      } while (next_index(probe, shape()));
      return std::nullopt;
    }
    for (const PlacedMode& placed : modes) {
      int64_t digit = std::clamp<int64_t>(rest[axis] / placed.mode.stride, 0, placed.mode.extent - 1);
      rest[axis] -= digit * placed.mode.stride;
      if (placed.dim >= 0) index[static_cast<size_t>(placed.dim)] += digit * placed.weight;
    }
    if (rest[axis] != 0) return std::nullopt;
  }
  for (size_t d = 0; d < index.size(); ++d)
    if (index[d] >= shape()[d]) return std::nullopt;
  return index;
}

std::optional<Index> Layout::element(int64_t thread, int64_t reg) const {
  Coords place;
  place[Axis::kThread] = thread;
  place[Axis::kRegister] = reg;
  return inverse(place);
}

bool Layout::is_injective() const {
  if (has_zero_stride(*this)) return false;
  if (std::all_of(std::begin(kAxes), std::end(kAxes),
                  [&](Axis axis) { return is_greedy(modes_on(*this, axis)); }))
    return true;
  std::set<std::array<int64_t, kAxisCount>> seen;
  Index index(static_cast<size_t>(rank()), 0);
  do {
    for (const Coords& place : places(index))
      if (!seen.insert(place.values).second) return false;
  } while (next_index(index, shape()));
  return true;
}

bool Layout::is_bijective() const {
  int64_t slots = 1;
  for (Axis axis : kAxes) slots *= extent(axis);
  return slots == size() * copies() && is_injective();
}

Layout operator*(const Layout& outer, const Layout& inner) {
  size_t rank = static_cast<size_t>(std::max(outer.rank(), inner.rank()));
  size_t skip_outer = rank - outer.shape().size(), skip_inner = rank - inner.shape().size();
  Shape shape(rank, 1);
  std::vector<Modes> modes(rank);
  for (size_t d = 0; d < rank; ++d) {
    if (d >= skip_outer) {
      shape[d] = outer.shape()[d - skip_outer];
      add_scaled(modes[d], outer.modes(static_cast<int>(d - skip_outer)), inner);
    }
    if (d >= skip_inner) {
      const Modes& inner_modes = inner.modes(static_cast<int>(d - skip_inner));
      int64_t extent = inner.shape()[d - skip_inner];
      if (shape[d] > 1 && product(inner_modes) != extent)
        fail(fmt::format("product: the inner layout is padded in dimension {} ({} of {} slots)", d, extent,
                         product(inner_modes)));
      shape[d] *= extent;
      modes[d].insert(modes[d].end(), inner_modes.begin(), inner_modes.end());
    }
  }
  Modes replicas = inner.replicas();
  add_scaled(replicas, outer.replicas(), inner);
  return Layout(std::move(shape), std::move(modes), std::move(replicas), joint_bits(outer, inner, "product"),
                joint_swizzle(outer, inner, "product"));
}

Layout concat(const Layout& a, const Layout& b) {
  Shape shape = a.shape();
  shape.insert(shape.end(), b.shape().begin(), b.shape().end());
  std::vector<Modes> modes;
  for (int d = 0; d < a.rank(); ++d) add_scaled(modes.emplace_back(), a.modes(d), b);
  for (int d = 0; d < b.rank(); ++d) modes.push_back(b.modes(d));
  Modes replicas = b.replicas();
  add_scaled(replicas, a.replicas(), b);
  return Layout(std::move(shape), std::move(modes), std::move(replicas), joint_bits(a, b, "concat"),
                joint_swizzle(a, b, "concat"));
}

bool operator==(const Layout& a, const Layout& b) {
  if (a.data_ == b.data_) return true;
  return a.data_->shape == b.data_->shape && a.data_->modes == b.data_->modes &&
         a.data_->replicas == b.data_->replicas && a.data_->element_bits == b.data_->element_bits &&
         a.data_->swizzle == b.data_->swizzle;
}

size_t Layout::hash() const {
  size_t seed = 0x9e3779b97f4a7c15u;
  auto mix = [&](int64_t value) { seed = (seed ^ static_cast<size_t>(value)) * 0x100000001b3u; };
  auto mix_modes = [&](const Modes& modes) {
    mix(static_cast<int64_t>(modes.size()));
    for (const Mode& mode : modes) {
      mix(mode.extent);
      mix(mode.stride);
      mix(static_cast<int64_t>(mode.axis));
    }
  };
  for (int64_t extent : shape()) mix(extent);
  for (const Modes& modes : data_->modes) mix_modes(modes);
  mix_modes(replicas());
  mix(element_bits());
  mix(swizzle().mode);
  return seed;
}

Layout spatial(const Shape& shape) { return Layout(shape, dense_modes(shape, Axis::kThread)); }
Layout column_spatial(const Shape& shape) { return Layout(shape, dense_modes(shape, Axis::kThread, true)); }
Layout local(const Shape& shape) { return Layout(shape, dense_modes(shape, Axis::kRegister)); }
Layout column_local(const Shape& shape) { return Layout(shape, dense_modes(shape, Axis::kRegister, true)); }

}  // namespace imbrex::layout
