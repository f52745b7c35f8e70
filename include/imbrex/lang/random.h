// SPDX-License-Identifier: Apache-2.0
// Random numbers by Philox-4x32-10: a function of a seed and a counter, with no state. Elements with different counters
// are independent, and the same counter gives the same number, whatever the tile, the layout and the GPU.
//
//   auto i = register_tensor(int64, {rows, columns}, [&](auto r, auto c) { return (row + r) * width + c; });
//   auto keep = random_uniform(seed, i) < 0.9;
#pragma once

#include "imbrex/lang/tensor.h"

namespace imbrex {

/// Four uint32 tiles of the counter's shape.
struct RandomWords {
  RegisterValue x, y, z, w;
};
/// The counter is an integer tile, of which 64 bits count, as do those of the seed.
RandomWords random_words(const ScalarArg& seed, const TileArg& counter);
/// Every uint32 alike: the first of random_words().
RegisterValue random_bits(const ScalarArg& seed, const TileArg& counter);
/// float32, evenly in [0, 1): multiples of 2^-24.
RegisterValue random_uniform(const ScalarArg& seed, const TileArg& counter);
/// float32 of mean 0 and deviation 1, by Box and Muller's transformation of two uniform numbers.
RegisterValue random_normal(const ScalarArg& seed, const TileArg& counter);

}  // namespace imbrex
