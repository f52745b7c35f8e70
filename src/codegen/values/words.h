// SPDX-License-Identifier: Apache-2.0
// Register tensors word by word: packing and unpacking elements, other orders, conversions.
#pragma once

#include "codegen/generator.h"

namespace imbrex::codegen {

/// The elements of these words, each as a scalar.
std::vector<Operand> unpack(Generator& g, DataType dtype, std::span<const Operand> words, int64_t count);
/// One element of a packed register.
Operand extract(Generator& g, DataType dtype, const Operand& word, int position);
/// The word made of these elements (as extract gives them); missing ones are zero.
Operand pack(Generator& g, DataType dtype, std::span<const Operand> elements);
/// Element `reg` of a tensor.
Operand element(Generator& g, const RegisterTensor& tensor, int64_t reg);
/// The tensor's elements in another order: register i takes element map[i] (-1: none).
std::vector<Operand> gather_words(Generator& g, const RegisterTensor& tensor, std::span<const int64_t> map);
/// The tensor's words as `layout` orders (and broadcasts) them; an InternalError where threads would have to
/// exchange data.
std::vector<Operand> words_in_layout(Generator& g, const ir::Op& op, const RegisterTensor& tensor,
                                     const layout::Layout& layout);
/// The tensor with its words in that order.
RegisterTensor in_layout(Generator& g, const ir::Op& op, RegisterTensor tensor, const layout::Layout& layout);
/// The bits of a tensor as elements of another type, in registers as `layout` numbers them.
RegisterTensor view_bits(Generator& g, const RegisterTensor& tensor, DataType dtype,
                         const layout::Layout& layout);
/// All elements converted, packed again.
std::vector<Operand> convert_words(Generator& g, const ir::Op& op, std::span<const Operand> words,
                                   int64_t count, DataType from, DataType to);
/// The same in another layout, which some conversions bring elements to for nothing.
std::vector<Operand> convert_tensor(Generator& g, const ir::Op& op, const RegisterTensor& tensor,
                                    const layout::Layout& layout, DataType to);

}  // namespace imbrex::codegen
