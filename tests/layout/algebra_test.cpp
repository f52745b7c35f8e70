// SPDX-License-Identifier: Apache-2.0
// Laws of the layout algebra on random layouts. A failure prints its seed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <unordered_set>

#include "imbrex/core/error.h"
#include "layout_testing.h"

namespace imbrex::layout {
namespace {

constexpr unsigned kSeeds = 300;

// Runs `check` with a fresh generator for every seed, so that any seed can be replayed alone.
template <typename Check>
void for_each_seed(Check check) {
  for (unsigned seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(seed);
    check(random);
    if (testing::Test::HasFailure()) return;
  }
}

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const CompileError& error) {
    return error.diagnostics().front().message;
  }
  return "(no error)";
}

TEST(Mapping, InverseUndoesEveryPlace) {
  for_each_seed([](Random& random) {
    Layout layout =
        random_layout(random, {.axes = {Axis::kThread, Axis::kRegister, Axis::kLane}, .padding = true});
    for_each_index(layout.shape(), [&](const Index& index) {
      std::vector<Coords> places = layout.places(index);
      ASSERT_EQ(static_cast<int64_t>(places.size()), layout.copies());
      ASSERT_EQ(places.front(), layout.map(index));
      for (const Coords& place : places) ASSERT_EQ(layout.inverse(place), index) << layout.to_string();
    });
  });
}

TEST(Mapping, InverseIsEmptyOutsideTheImage) {
  for_each_seed([](Random& random) {
    Layout layout = random_layout(random, {.padding = true});
    std::set<std::pair<int64_t, int64_t>> image;
    for_each_index(layout.shape(), [&](const Index& index) {
      for (const Coords& place : layout.places(index))
        image.insert({place[Axis::kThread], place[Axis::kRegister]});
    });
    EXPECT_EQ(static_cast<int64_t>(image.size()), layout.size() * layout.copies());
    for (int64_t t = 0; t <= layout.threads(); ++t)
      for (int64_t r = 0; r <= layout.registers(); ++r)
        ASSERT_EQ(layout.element(t, r).has_value(), image.count({t, r}) == 1) << layout.to_string();
    EXPECT_EQ(layout.is_bijective(),
              static_cast<int64_t>(image.size()) == layout.threads() * layout.registers());
  });
}

TEST(Mapping, InjectiveIsJudgedByTheElements) {
  for_each_seed([](Random& random) {
    // Arbitrary strides: often not injective, sometimes injective in a way digits do not show.
    Shape shape{pick(random, 1, 4), pick(random, 1, 4)};
    std::vector<Modes> modes;
    for (int64_t extent : shape) modes.push_back({{extent, pick(random, 0, 5), Axis::kRegister}});
    Layout layout(shape, modes);
    std::set<int64_t> image;
    for_each_index(shape, [&](const Index& index) { image.insert(layout.map(index)[Axis::kRegister]); });
    EXPECT_EQ(layout.is_injective(), static_cast<int64_t>(image.size()) == layout.size())
        << layout.to_string();
    for_each_index(shape, [&](const Index& index) {
      std::optional<Index> back = layout.inverse(layout.map(index));
      ASSERT_TRUE(back.has_value());
      EXPECT_EQ(layout.map(*back), layout.map(index));
    });
  });
}

TEST(Mapping, ExtentsCountTheSlots) {
  for_each_seed([](Random& random) {
    Layout layout = random_layout(random);
    Coords largest;
    for_each_index(layout.shape(), [&](const Index& index) {
      for (const Coords& place : layout.places(index))
        for (Axis axis : kAxes) largest[axis] = std::max(largest[axis], place[axis]);
    });
    for (Axis axis : kAxes) EXPECT_EQ(layout.extent(axis), largest[axis] + 1);
  });
}

TEST(CanonicalForm, EqualMappingsAreEqualLayouts) {
  for_each_seed([](Random& random) {
    Layout layout = random_layout(random, {.padding = true});
    // The same mapping, spelled with every mode split in all its prime factors and with modes of extent 1.
    auto split = [&](const Modes& modes) {
      Modes result;
      for (Mode mode : modes) {
        Modes factors;
        while (mode.extent > 1) {
          int64_t prime = 2;
          while (mode.extent % prime != 0) ++prime;
          factors.insert(factors.begin(), {prime, mode.stride, mode.axis});
          mode = {mode.extent / prime, mode.stride * prime, mode.axis};
        }
        result.insert(result.end(), factors.begin(), factors.end());
        result.push_back({1, pick(random, 0, 9), Axis::kColumn});
      }
      return result;
    };
    std::vector<Modes> modes;
    for (int d = 0; d < layout.rank(); ++d) modes.push_back(split(layout.modes(d)));
    Modes replicas = split(layout.replicas());
    std::shuffle(replicas.begin(), replicas.end(), random);
    Layout same(layout.shape(), modes, replicas);
    EXPECT_EQ(same, layout) << same.to_string() << " / " << layout.to_string();
    EXPECT_EQ(same.hash(), layout.hash());
  });
}

TEST(CanonicalForm, DifferentMappingsDiffer) {
  for_each_seed([](Random& random) {
    // The same shape with one or two modes exchanged: often another mapping, sometimes the same one.
    Layout a = random_layout(random, {.replicas = false, .gaps = false});
    std::vector<Modes> modes;
    std::vector<Mode*> all;
    for (int d = 0; d < a.rank(); ++d) modes.push_back(a.modes(d));
    for (Modes& list : modes)
      for (Mode& mode : list) all.push_back(&mode);
    if (all.size() < 2) return;
    std::swap(*all[static_cast<size_t>(pick(random, 0, static_cast<int64_t>(all.size()) - 1))], *all[0]);
    for (size_t d = 0; d < modes.size(); ++d) {
      int64_t slots = 1;
      for (const Mode& mode : modes[d]) slots *= mode.extent;
      if (slots < a.shape()[d]) return;
    }
    Layout b(a.shape(), modes);
    bool same = true;
    for_each_index(a.shape(), [&](const Index& index) { same = same && a.map(index) == b.map(index); });
    EXPECT_EQ(a == b, same) << a.to_string() << " / " << b.to_string();
  });
}

TEST(Product, PutsInnerTilesAtOuterPlaces) {
  for_each_seed([](Random& random) {
    Layout a = random_layout(random), b = random_layout(random);
    if (a.size() * b.size() > 20000) return;
    Layout ab = a * b;
    size_t rank = ab.shape().size();
    EXPECT_EQ(ab.copies(), a.copies() * b.copies());
    for (Axis axis : kAxes) EXPECT_EQ(ab.extent(axis), a.extent(axis) * b.extent(axis));
    for_each_index(ab.shape(), [&](const Index& index) {
      Index outer(a.shape().size()), inner(b.shape().size());
      for (size_t d = 0; d < rank; ++d) {
        int64_t tile = d + inner.size() >= rank ? b.shape()[d + inner.size() - rank] : 1;
        if (d + inner.size() >= rank) inner[d + inner.size() - rank] = index[d] % tile;
        if (d + outer.size() >= rank) outer[d + outer.size() - rank] = index[d] / tile;
      }
      Coords expected = b.map(inner);
      for (Axis axis : kAxes) expected[axis] += a.map(outer)[axis] * b.extent(axis);
      ASSERT_EQ(ab.map(index), expected) << a.to_string() << " * " << b.to_string();
    });
  });
}

TEST(Product, IsAssociativeWithUnitScalar) {
  for_each_seed([](Random& random) {
    Layout a = random_layout(random), b = random_layout(random), c = random_layout(random);
    if (a.size() * b.size() * c.size() > 100000) return;
    EXPECT_EQ((a * b) * c, a * (b * c));
    EXPECT_EQ(a * Layout(), a);
    EXPECT_EQ(Layout() * a, a);
  });
}

TEST(Product, SpatialAndLocalNest) {
  // 2x4 threads of 3x2 elements each, the whole repeated twice along the last dimension.
  Layout layout = repeat(within(spatial({2, 4}), {3, 2}), {1, 2});
  EXPECT_EQ(layout.shape(), (Shape{6, 16}));
  for_each_index(layout.shape(), [&](const Index& index) {
    int64_t i = index[0], j = index[1];
    Coords place = layout.map(index);
    EXPECT_EQ(place[Axis::kThread], i / 3 * 4 + j % 8 / 2);
    EXPECT_EQ(place[Axis::kRegister], j / 8 * 6 + i % 3 * 2 + j % 2);
  });
  EXPECT_TRUE(layout.is_bijective());
  EXPECT_EQ(column_spatial({2, 4}), spatial({4, 2}).transpose());
  EXPECT_EQ(column_local({2, 4}), local({4, 2}).transpose());
}

TEST(Concat, ListsDimensions) {
  for_each_seed([](Random& random) {
    Layout a = random_layout(random), b = random_layout(random);
    if (a.size() * b.size() > 20000) return;
    Layout both = concat(a, b);
    for_each_index(both.shape(), [&](const Index& index) {
      Index first(index.begin(), index.begin() + a.rank()), second(index.begin() + a.rank(), index.end());
      Coords expected = b.map(second);
      for (Axis axis : kAxes) expected[axis] += a.map(first)[axis] * b.extent(axis);
      ASSERT_EQ(both.map(index), expected);
    });
  });
}

TEST(Views, PermuteMovesDimensions) {
  for_each_seed([](Random& random) {
    Layout layout = random_layout(random, {.padding = true});
    std::vector<int> order(layout.shape().size()), back(order.size());
    for (size_t d = 0; d < order.size(); ++d) order[d] = static_cast<int>(d);
    std::shuffle(order.begin(), order.end(), random);
    for (size_t d = 0; d < order.size(); ++d) back[static_cast<size_t>(order[d])] = static_cast<int>(d);
    Layout permuted = layout.permute(order);
    for_each_index(layout.shape(), [&](const Index& index) {
      Index moved;
      for (int d : order) moved.push_back(index[static_cast<size_t>(d)]);
      ASSERT_EQ(permuted.map(moved), layout.map(index));
    });
    EXPECT_EQ(permuted.permute(back), layout);
  });
}

TEST(Views, ReshapeKeepsTheRowMajorOrder) {
  int reshaped = 0;
  for_each_seed([&](Random& random) {
    Layout layout = random_layout(random);
    Shape target;
    for (int64_t rest = layout.size(); rest > 1;) {
      int64_t extent = rest;
      for (int64_t divisor = 2; divisor < rest; ++divisor)
        if (rest % divisor == 0 && pick(random, 0, 2) == 0) extent = divisor;
      target.insert(target.begin() + pick(random, 0, static_cast<int64_t>(target.size())), extent);
      rest /= extent;
    }
    if (pick(random, 0, 1))
      target.insert(target.begin() + pick(random, 0, static_cast<int64_t>(target.size())), 1);
    Layout result;
    try {
      result = layout.reshape(target);
    } catch (const CompileError&) {
      return;
    }
    ++reshaped;
    ASSERT_EQ(result.shape(), target);
    Index at(layout.shape().size(), 0);
    for_each_index(target, [&](const Index& index) {
      ASSERT_EQ(result.map(index), layout.map(at)) << layout.to_string() << " -> " << result.to_string();
      for (size_t d = at.size(); d-- > 0;) {
        if (++at[d] < layout.shape()[d]) break;
        at[d] = 0;
      }
    });
    EXPECT_EQ(result.reshape(layout.shape()), layout);
  });
  EXPECT_GT(reshaped, 50);
}

TEST(Views, ReshapeSucceedsWheneverThereAreModesForIt) {
  // The coarsest and the finest grouping of a layout must be reachable from each other.
  EXPECT_EQ(local({4, 6}).reshape({3, 8}), local({3, 8}));
  EXPECT_EQ(local({96}).reshape({4, 24}), local({4, 24}));
  Layout fragment = Layout::parse("[64: 4t32 2r2 8t4, 16: 2r4 4t1 2r1]");
  EXPECT_EQ(fragment.reshape({4, 16, 16}).to_string(), "[4: 4t32, 16: 2r2 8t4, 16: 2r4 4t1 2r1]");
  EXPECT_THAT(message_of([&] { fragment.reshape({64, 2, 4, 2}); }), "(no error)");
  EXPECT_THAT(message_of([] {
                spatial({6}).reshape({4, 2});
              }),
              "layout: reshape: 6 cannot become 4x2: 6 and 8 elements");
  Layout cut = Layout::parse("[6: 3t1 2r1]");
  EXPECT_EQ(message_of([&] {
              cut.reshape({2, 3});
            }),
            "layout: reshape: 6 cannot become 2x3: extent 3 of dimension 1 cuts through a mode");
}

TEST(Views, SqueezeAndUnsqueezeAreInverse) {
  for_each_seed([](Random& random) {
    Layout layout = random_layout(random, {.padding = true});
    int dim = static_cast<int>(pick(random, 0, layout.rank()));
    Layout wide = layout.unsqueeze(dim);
    EXPECT_EQ(wide.shape()[static_cast<size_t>(dim)], 1);
    EXPECT_EQ(wide.squeeze(dim), layout);
  });
  EXPECT_EQ(message_of([] { spatial({4}).squeeze(0); }),
            "layout: squeeze: dimension 0 of shape 4 has extent 4");
}

TEST(Views, SlicesShowTheirPartOrRefuse) {
  int sliced = 0, refused_wrongly = 0;
  for_each_seed([&](Random& random) {
    Layout layout = random_layout(random, {.padding = true});
    Index starts;
    Shape extents;
    for (int64_t extent : layout.shape()) {
      extents.push_back(pick(random, 1, extent));
      starts.push_back(pick(random, 0, extent - extents.back()));
    }
    try {
      Slice part = layout.slice(starts, extents);
      ++sliced;
      for_each_index(extents, [&](const Index& index) {
        Index whole = index;
        for (size_t d = 0; d < whole.size(); ++d) whole[d] += starts[d];
        ASSERT_EQ(part.layout.map(index, part.offset), layout.map(whole))
            << layout.to_string() << " from " << testing::PrintToString(starts);
      });
    } catch (const CompileError&) {
      // Refusing is right only when some dimension's part is no sum of digits. A single mode always is one.
      bool affine = true;
      for (int d = 0; d < layout.rank(); ++d) affine = affine && layout.modes(d).size() <= 1;
      refused_wrongly += affine;
    }
  });
  EXPECT_GT(sliced, 100);
  EXPECT_EQ(refused_wrongly, 0);
}

TEST(Views, RunTimeSlicesHoldForEveryAlignedStart) {
  int sliced = 0;
  for_each_seed([&](Random& random) {
    Layout layout = random_layout(random);
    Shape extents;
    Index alignment;
    for (int64_t extent : layout.shape()) {
      extents.push_back(pick(random, 1, extent));
      alignment.push_back(pick(random, 0, 1) ? extents.back() : pick(random, 1, extent));
    }
    Layout part;
    try {
      part = layout.slice_at(extents, alignment);
    } catch (const CompileError&) {
      return;
    }
    ++sliced;
    Shape steps;
    for (size_t d = 0; d < extents.size(); ++d)
      steps.push_back((layout.shape()[d] - extents[d]) / alignment[d] + 1);
    for_each_index(steps, [&](const Index& step) {
      Index starts;
      for (size_t d = 0; d < step.size(); ++d) starts.push_back(step[d] * alignment[d]);
      Coords offset = layout.linear(starts);
      for_each_index(extents, [&](const Index& index) {
        Index whole = index;
        for (size_t d = 0; d < whole.size(); ++d) whole[d] += starts[d];
        ASSERT_EQ(part.map(index, offset), layout.map(whole))
            << layout.to_string() << " by " << testing::PrintToString(extents);
      });
    });
  });
  EXPECT_GT(sliced, 100);
}

TEST(Views, LeadingIndexDropsTheDimension) {
  for_each_seed([](Random& random) {
    Layout layout = random_layout(random, {.padding = true});
    if (layout.rank() == 0) return;
    for (int64_t i = 0; i < layout.shape()[0]; ++i) {
      Slice part = layout.at(i);
      EXPECT_EQ(part.layout, layout.without_leading());
      for_each_index(part.layout.shape(), [&](const Index& index) {
        Index whole = index;
        whole.insert(whole.begin(), i);
        ASSERT_EQ(part.layout.map(index, part.offset), layout.map(whole));
      });
    }
  });
}

TEST(Reduce, EveryThreadThatHadAPartHoldsTheResult) {
  for_each_seed([](Random& random) {
    Layout layout = random_layout(random);
    if (layout.rank() == 0) return;
    int dim = static_cast<int>(pick(random, 0, layout.rank() - 1));
    Layout kept = layout.reduce(dim, true);
    EXPECT_EQ(kept.squeeze(dim), layout.reduce(dim));
    std::set<std::pair<int64_t, Index>> before, after;
    for_each_index(layout.shape(), [&](const Index& index) {
      for (const Coords& place : layout.places(index)) {
        Index reduced = index;
        reduced[static_cast<size_t>(dim)] = 0;
        before.insert({place[Axis::kThread], reduced});
      }
    });
    for_each_index(kept.shape(), [&](const Index& index) {
      for (const Coords& place : kept.places(index)) after.insert({place[Axis::kThread], index});
    });
    EXPECT_EQ(before, after) << layout.to_string() << " over " << dim;
    // Registers are dense: their extents multiply to the count.
    int64_t registers = 1;
    for (int d = 0; d < kept.rank(); ++d)
      for (const Mode& mode : kept.modes(d))
        if (mode.axis == Axis::kRegister) registers *= mode.extent;
    EXPECT_EQ(kept.registers(), registers);
  });
}

TEST(Reduce, RefusesMemory) {
  EXPECT_EQ(message_of([] {
              Layout({4}, {{{4, 1, Axis::kAddress}}}, {}, 32).reduce(0);
            }),
            "layout: reduce: dimension 0 lies along the address axis, not in registers");
}

TEST(Replicas, FillTheThreads) {
  Layout layout = spatial({4, 8}).replicate_to(128);
  EXPECT_EQ(layout.threads(), 128);
  EXPECT_EQ(layout.copies(), 4);
  EXPECT_EQ(layout.element(37, 0), (Index{0, 5}));
  EXPECT_EQ(message_of([] { spatial({3}).replicate_to(8); }), "layout: replicate: 3 threads onto 8");
}

TEST(Padding, HoldsNothing) {
  Layout layout({102}, {{{128, 4, Axis::kThread}, {4, 1, Axis::kRegister}}});
  EXPECT_TRUE(layout.is_padded());
  Layout dense({102}, {{{32, 1, Axis::kThread}, {4, 1, Axis::kRegister}}});
  EXPECT_EQ(dense.threads(), 26) << "trimmed to the threads that hold something";
  EXPECT_EQ(dense.element(25, 1), (Index{101}));
  EXPECT_EQ(dense.element(25, 2), std::nullopt);
  EXPECT_EQ(dense.element(26, 0), std::nullopt);
}

TEST(Construction, BadInputIsNamed) {
  EXPECT_EQ(message_of([] {
              Layout({8}, {{{4, 1, Axis::kThread}}});
            }),
            "layout: modes of dimension 0 reach 4 of 8 elements");
  EXPECT_EQ(message_of([] { Layout({8}, {}); }), "layout: 1 dimensions but modes for 0");
  EXPECT_EQ(message_of([] { Layout({0}, {{}}); }), "layout: extent 0 in dimension 0 of shape 0");
  EXPECT_EQ(message_of([] {
              Layout({2}, {{{2, -1, Axis::kThread}}});
            }),
            "layout: mode of extent 2 and stride -1");
  EXPECT_EQ(message_of([] { spatial({4}).map({4}); }), "layout: index 4 outside 0...3 in dimension 0");
  EXPECT_EQ(message_of([] { spatial({4}).map({1, 2}); }), "layout: index of rank 2 into shape 4");
  EXPECT_EQ(message_of([] { spatial({4}).with_swizzle({Swizzle::k128B}); }),
            "layout: elements of 0 bits with swizzle 128B");
}

TEST(Hash, SpreadsDifferentLayouts) {
  std::unordered_set<size_t> hashes;
  for (int64_t a = 1; a <= 16; ++a)
    for (int64_t b = 1; b <= 16; ++b) {
      hashes.insert(local({a, b}).hash());
      if (a * b > 1) hashes.insert(spatial({a, b}).hash());
    }
  EXPECT_EQ(hashes.size(), 16u * 16 * 2 - 1);
}

}  // namespace
}  // namespace imbrex::layout
