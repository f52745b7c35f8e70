// SPDX-License-Identifier: Apache-2.0
// Register tensors whose bits are taken as elements of another type. No data moves between threads: what a thread
// holds before, it holds afterwards, in the same order of bits, the first element from the lowest bit on.
#pragma once

#include "imbrex/lang/tensor.h"

namespace imbrex {

/// The same dimensions but for the last, which is longer or shorter as elements are narrower or wider: a uint32 tile of
/// [m, k] is an int4 tile of [m, 8 k]. CompileError where the bits of an element would come from several threads.
RegisterValue view(const TileArg& a, DataType dtype, SourceLocation where = SourceLocation::current());

/// A tile of any shape and as many bits. `a` is a matrix with a row for each thread of the executing group: row t is what
/// thread t holds of the result, whose layout follows from its uses (a fragment of mma(), the A operand of
/// wgmma::mma()) or from annotate_layout(). So weights are taken from memory as words, in the order in which tensor cores
/// want them:
///
///   auto words = load_shared(s_words);                   // uint32 [128, 4]
///   auto a = view(words, float16, {64, 16});             // the A operand of wgmma, 4 words in each of 128 threads
///
/// CompileError where the result's layout gives a thread another number of bits.
RegisterValue view(const TileArg& a, DataType dtype, const Shape& shape,
                   SourceLocation where = SourceLocation::current());
/// The same with the result's layout.
RegisterValue view(const TileArg& a, DataType dtype, const layout::Layout& layout,
                   SourceLocation where = SourceLocation::current());

}  // namespace imbrex
