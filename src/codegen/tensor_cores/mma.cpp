// SPDX-License-Identifier: Apache-2.0
// mma: each warp multiplies its box fragment by fragment. The accumulator is updated in place where its old
// value is not needed, so that sums stay in the same registers all through a loop.
#include <algorithm>
#include <optional>

#include "codegen/generator.h"
#include "codegen/values/words.h"
#include "layout/registers.h"

namespace imbrex::codegen {

using ir::Opcode;

namespace {

bool is_product(const ir::Op& op) { return op.code == Opcode::kMma || op.code == Opcode::kMmaScaled; }

/// The only op that uses the value, if it stands in the block.
const ir::Op* only_use(const Uses& uses, const ir::Value* value, const ir::Block* block) {
  const std::vector<const ir::Op*>& of = uses.of(value);
  return of.size() == 1 && of[0]->parent == block ? of[0] : nullptr;
}

bool is_accumulation(const ir::Op* op, const ir::Value* value) {
  return op && is_product(*op) && op->operands[2] == value && op->operands[0] != value &&
         op->operands[1] != value;
}

/// True when `op`, whose c is a variable's value, begins a chain of products that ends by assigning the last
/// sum to that variable, which nothing reads in between.
bool updates_its_variable(const Uses& uses, const ir::Op& op) {
  const ir::Op* read = op.operands[2]->def;
  if (!read || read->code != Opcode::kRead || read->parent != op.parent) return false;
  if (!is_accumulation(only_use(uses, read->result(), op.parent), read->result())) return false;
  const ir::Value* variable = read->operands[0];
  const ir::Op* end = &op;
  while (end && is_product(*end)) {
    const ir::Op* next = only_use(uses, end->result(), op.parent);
    const bool is_end = next && next->code == Opcode::kAssign && next->operands[0] == variable;
    if (!is_end && !is_accumulation(next, end->result())) return false;
    end = next;
  }
  // Whatever else touches the variable, in this block or inside of one of its ops, comes before or after.
  for (const ir::Op* other : uses.of(variable)) {
    if (other == end || other == read) continue;
    const ir::Op* at = other;
    while (at && at->parent != op.parent) at = at->parent ? at->parent->parent : nullptr;
    if (!at) continue;
    const int64_t position = uses.position(at);
    if (position > uses.position(&op) && position < uses.position(end)) return false;
    // An earlier read may share the variable's registers for as long as it is used.
    if (other->code == Opcode::kRead && position < uses.position(end)) return false;
  }
  return true;
}

/// The registers of the sum: those of c when c is not needed any more.
std::vector<Operand> sum_registers(Generator& g, const ir::Op& op, const RegisterTensor& c,
                                   const layout::Layout& layout) {
  const ir::Op* maker = op.operands[2]->def;
  const bool is_last_use =
      maker && is_product(*maker) && only_use(g.uses(), op.operands[2], maker->parent) == &op;
  if (c.layout == layout && (is_last_use || updates_its_variable(g.uses(), op))) return c.words;
  return g.new_tensor(c.dtype, layout).words;
}

/// Words of one tensor, fragment by fragment.
class Fragments {
 public:
  /// The tensor has `columns` fragments side by side.
  Fragments(std::vector<Operand> words, const layout::Layout& fragment, DataType dtype, int64_t columns)
      : words_(std::move(words)),
        size_(static_cast<size_t>(fragment.registers() * dtype.bits() / 32)),
        columns_(columns) {}
  std::span<const Operand> at(int64_t i, int64_t j) const {
    return std::span(words_).subspan(static_cast<size_t>(i * columns_ + j) * size_, size_);
  }

 private:
  std::vector<Operand> words_;
  size_t size_;
  int64_t columns_;
};

std::vector<Operand> as_bits(Generator& g, DataType dtype, std::vector<Operand> words) {
  for (Operand& word : words)
    word = word_type(dtype) == ScalarType::b32
               ? g.e().to_register(ScalarType::b32, word)
               : Operand(g.e().make(ScalarType::b32, Op::mov, {ScalarType::b32},
                                    {g.e().to_register(word_type(dtype), word)}));
  return words;
}

/// The words and operands that one instruction has for block scales.
class BlockScales {
 public:
  BlockScales(Generator& g, const ir::Op& op, DataType a, int64_t steps)
      : e_(g.e()), blocks_(op.operands[3]->type.shape[1]), per_step_(blocks_ / steps) {
    const layout::Shape& c = op.result()->type.shape;
    const layout::MmaScales layouts =
        layout::mma_scales(c[0], c[1], blocks_, op.int_attr("warps_m"), op.int_attr("warps_n"));
    scale_type_ = op.operands[3]->type.dtype == float8_ue4m3 ? ScalarType::ue4m3 : ScalarType::ue8m0;
    kind_ = a.bits() == 8 ? Mod::kind_mxf8f6f4 : per_step_ == 4 ? Mod::kind_mxf4nvf4 : Mod::kind_mxf4;
    a_ = as_bits(g, uint8, words_in_layout(g, op, g.get<RegisterTensor>(op.operands[3]), layouts.a));
    b_ = as_bits(g, uint8, words_in_layout(g, op, g.get<RegisterTensor>(op.operands[4]), layouts.b));
  }

  Mod kind() const { return kind_; }
  Mod scale_vector() const {
    return per_step_ == 1 ? Mod::scale_vec_1X : per_step_ == 2 ? Mod::scale_vec_2X : Mod::scale_vec_4X;
  }
  ScalarType scale_type() const { return scale_type_; }
  /// The scales of rows block i and columns block j at a step of k: the register, and where in it they begin.
  void add(std::vector<Operand>& operands, int64_t i, int64_t j, int64_t step) const {
    for (const auto& [words, block] : {std::pair(&a_, i), std::pair(&b_, j)}) {
      const int64_t first = block * blocks_ + step * per_step_;
      operands.push_back((*words)[static_cast<size_t>(first / 4)]);
      operands.push_back(e_.builder().vec(std::array<Operand, 2>{first % 4, 0}));  // the first thread's
    }
  }

 private:
  Emitter& e_;
  int64_t blocks_, per_step_;
  ScalarType scale_type_;
  Mod kind_;
  std::vector<Operand> a_, b_;
};

/// What the elements of an operand of a scaled product are to the instruction.
ScalarType scaled_matrix_type(const ir::Op& op, DataType held, std::string_view attr) {
  const DataType type = op.attr(attr) ? op.dtype_attr(attr) : held;
  return type == float8_e4m3   ? ScalarType::e4m3
         : type == float8_e5m2 ? ScalarType::e5m2
         : type == float6_e2m3 ? ScalarType::e2m3
         : type == float6_e3m2 ? ScalarType::e3m2
                               : ScalarType::e2m1;
}

/// mma, and mma with block scales.
void emit_product(Generator& g, const ir::Op& op) {
  const RegisterTensor& a = g.get<RegisterTensor>(op.operands[0]);
  const RegisterTensor& b = g.get<RegisterTensor>(op.operands[1]);
  const RegisterTensor& c = g.get<RegisterTensor>(op.operands[2]);
  if (a.dtype.is_float() && a.dtype.bits() == 8) {
    g.require_arch(op, 89, "mma of 8-bit floats");
    g.e().module().version = std::max(g.e().module().version, 84);  // the first PTX that has it
  }
  const int64_t m = a.layout.shape()[0], k = a.layout.shape()[1], n = b.layout.shape()[1];
  const int bits = a.dtype.bits(), k_step = 256 / bits;
  const int64_t warps_m = op.int_attr("warps_m"), warps_n = op.int_attr("warps_n");
  const layout::MmaFragments one = layout::mma_fragments(16, 8, k_step, bits);
  const layout::MmaFragments all = layout::mma_tile(m, n, k, bits, warps_m, warps_n);
  const int64_t rows = m / (16 * warps_m), columns = n / (8 * warps_n), steps = k / k_step;

  Emitter& e = g.e();
  const auto words = [&](const RegisterTensor& t, const layout::Layout& layout) {
    return words_in_layout(g, op, t, layout);
  };
  const Fragments a_words(as_bits(g, a.dtype, words(a, all.a)), one.a, a.dtype, steps);
  const Fragments b_words(as_bits(g, b.dtype, words(b, all.b)), one.b, b.dtype, columns);
  const Fragments c_words(words(c, all.c), one.c, c.dtype, columns);
  RegisterTensor sum{c.dtype, all.c, g.group(), sum_registers(g, op, c, all.c)};
  const Fragments d_words(sum.words, one.c, c.dtype, columns);

  const Suffix shape = Suffix::shape(16, 8, k_step);
  const ScalarType d_type = matrix_sum_type(c.dtype);
  std::optional<BlockScales> scales;
  std::vector<Suffix> suffixes{Mod::aligned};
  if (op.code == Opcode::kMmaScaled) {
    scales.emplace(g, op, a.dtype, steps);
    suffixes.insert(suffixes.end(),
                    {scales->kind(), Mod::block_scale, scales->scale_vector(), shape, Mod::row, Mod::col,
                     d_type, scaled_matrix_type(op, a.dtype, "a_type"),
                     scaled_matrix_type(op, b.dtype, "b_type"), d_type, scales->scale_type()});
  } else {
    suffixes.insert(suffixes.end(),
                    {shape, Mod::row, Mod::col, d_type, matrix_type(a.dtype), matrix_type(b.dtype), d_type});
  }
  // Column by column, up and down: neighbours share the registers of b, or at the turn those of a.
  for (int64_t step = 0; step < steps; ++step)
    for (int64_t j = 0; j < columns; ++j)
      for (int64_t row = 0; row < rows; ++row) {
        const int64_t i = j % 2 == 0 ? row : rows - 1 - row;
        const std::span<const Operand> d = d_words.at(i, j);
        std::vector<Operand> addend;
        for (const Operand& word : step == 0 ? c_words.at(i, j) : d)
          addend.push_back(e.to_register(word_type(c.dtype), word));
        std::vector<Operand> operands{e.builder().vec(d), e.builder().vec(a_words.at(i, step)),
                                      e.builder().vec(b_words.at(step, j)), e.builder().vec(addend)};
        if (scales) scales->add(operands, i, j, step);
        e.emit(Op::mma_sync, suffixes, operands);
      }
  g.bind(op.result(), in_layout(g, op, std::move(sum), g.layout_of(op.result())));
}

}  // namespace

void emit_Mma(Generator& g, const ir::Op& op) { emit_product(g, op); }
void emit_MmaScaled(Generator& g, const ir::Op& op) { emit_product(g, op); }

}  // namespace imbrex::codegen
