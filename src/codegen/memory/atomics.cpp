// SPDX-License-Identifier: Apache-2.0
// Atomic updates and semaphores.
//
// A tile is updated by the threads that hold its first copy, a scalar by the first thread of the group, which then
// gives the others the old value. Results that nothing uses are not asked for: red instead of atom. An exchange whose old
// values nothing uses is a store, an update that leaves everything as it is a load: st and ld of the same order and scope.
#include <fmt/format.h>

#include "codegen/memory/indexed.h"
#include "codegen/memory/item.h"
#include "codegen/memory/shared_memory.h"
#include "codegen/threads.h"
#include "codegen/values/words.h"
#include "layout/memory.h"

namespace imbrex::codegen {

namespace {

struct KindWord {
  std::string_view kind;
  Mod word;
};
constexpr KindWord kKinds[] = {{"add", Mod::add}, {"min", Mod::min},  {"max", Mod::max},   {"and", Mod::and_},
                               {"or", Mod::or_},  {"xor", Mod::xor_}, {"exch", Mod::exch}, {"cas", Mod::cas}};
constexpr KindWord kOrders[] = {{"relaxed", Mod::relaxed}, {"acquire", Mod::acquire},
                                {"release", Mod::release}, {"acq_rel", Mod::acq_rel},
                                {"cta", Mod::cta},         {"cluster", Mod::cluster},
                                {"gpu", Mod::gpu},         {"sys", Mod::sys}};
template <size_t N>
Mod word_of(const KindWord (&words)[N], std::string_view kind) {
  for (const KindWord& w : words)
    if (w.kind == kind) return w.word;
  throw InternalError("codegen: atomic: no word for " + std::string(kind));
}

bool acquires(const ir::Op& op) {
  return op.attr("sem") && (op.string_attr("sem") == "acquire" || op.string_attr("sem") == "acq_rel");
}
bool releases(const ir::Op& op) {
  return op.attr("sem") && (op.string_attr("sem") == "release" || op.string_attr("sem") == "acq_rel");
}

/// An integer tile or scalar that is 0 throughout.
bool is_zero(const ir::Value* value) {
  if (const ir::Op* broadcast = ir::defined_by(value, ir::Opcode::kBroadcast)) value = broadcast->operands[0];
  const ir::Op* constant = ir::defined_by(value, ir::Opcode::kConst);
  return constant && constant->attr("int") && constant->int_attr("int") == 0;
}

/// The scope's word; a wider one where the target has none of clusters.
Mod scope_of(Generator& g, const ir::Op& op, Mod space) {
  if (!op.attr("scope")) return space == Mod::global ? Mod::gpu : Mod::cta;
  if (op.string_attr("scope") == "cluster") g.require_arch(op, 90, "the cluster's scope");
  return word_of(kOrders, op.string_attr("scope"));
}

/// The atom or red of one op, or the ld or st that does the same.
class Update {
 public:
  Update(Generator& g, const ir::Op& op, Mod space)
      : g_(g), op_(op), space_(space), dtype_(op.operands[0]->type.dtype), kind_(op.string_attr("kind")) {
    if (kind_ == "add" && dtype_ == bfloat16) g.require_arch(op, 90, "atomic addition of bfloat16");
    // Where no order is asked for, what PTX means without a word: relaxed, among the threads of the GPU.
    if (op.attr("sem") || op.attr("scope")) {
      order_.push_back(op.attr("sem") ? word_of(kOrders, op.string_attr("sem")) : Mod::relaxed);
      order_.push_back(scope_of(g, op, space));
    }
    has_result_ = !g.uses().of(op.result()).empty();
    if (kind_ == "exch" && !has_result_ && !acquires(op)) access_ = Op::st;
    const bool changes = (kind_ != "or" && kind_ != "xor") || !is_zero(op.operands[1]);
    if (!changes && has_result_ && !releases(op)) access_ = Op::ld;
    if (access_ && order_.empty()) order_ = {Mod::relaxed, space == Mod::global ? Mod::gpu : Mod::cta};
  }

  bool has_result() const { return has_result_; }

  /// Elements that one instruction may update.
  int64_t most_elements() const {
    if (access_) return space_ == Mod::global ? 128 / dtype_.bits() : 1;
    const bool is_half = dtype_ == float16 || dtype_ == bfloat16;
    if (kind_ != "add" || space_ != Mod::global || (!is_half && dtype_ != float32)) return 1;
    const bool has_vectors = g_.arch() >= 90;
    return is_half ? (has_vectors ? 8 : 2) : (has_vectors ? 4 : 1);
  }

  /// The class of the registers that `elements` elements take.
  ScalarType register_class(int64_t elements) const {
    return elements > 1 && dtype_.bits() == 16 ? ScalarType::b32 : register_type(dtype_);
  }

  /// Emits it; the old values as registers of register_class(), or none.
  std::vector<Operand> emit(int64_t elements, const Operand& address, std::span<const Operand> values,
                            const std::optional<Operand>& compare, const Operand& predicate) {
    Emitter& e = g_.e();
    if (values.size() > 1 && !access_)
      e.module().version = std::max(e.module().version, 81);  // vectors came later
    const ScalarType reg = register_class(elements);
    const bool asks =
        access_ ? access_ == Op::ld : has_result_ || kind_ == "exch" || kind_ == "cas" || acquires(op_);
    std::vector<Operand> old, in;
    for (const Operand& v : values) in.push_back(e.to_register(reg, v));
    if (asks)  // into registers even if nobody reads them: ptxas 13.0 crashes on `_` for bf16
      for (size_t i = 0; i < values.size(); ++i) {
        const Reg r = e.reg(reg);
        if (has_result_ && predicate.is_reg())
          e.emit(Op::mov, {bits_type(reg)}, {r, 0});  // where it does not run
        old.push_back(r);
      }
    std::vector<Operand> operands;
    if (asks) operands.push_back(one_or_vector(old));
    operands.push_back(address);
    if (compare) operands.push_back(e.to_register(reg, *compare));
    if (access_ != Op::ld) operands.push_back(one_or_vector(in));
    ptx::Instruction& i =
        e.emit(access_.value_or(asks ? Op::atom : Op::red), words(elements, values.size()), operands);
    if (predicate.is_reg()) i.when(predicate.reg());
    if (!has_result_) old.clear();
    return old;
  }

 private:
  static ScalarType bits_type(ScalarType reg) {
    return reg == ScalarType::f32 ? ScalarType::b32 : reg == ScalarType::f64 ? ScalarType::b64 : reg;
  }

  Operand one_or_vector(std::span<const Operand> registers) {
    return registers.size() == 1 ? registers[0] : g_.e().builder().vec(registers);
  }

  std::vector<Suffix> words(int64_t elements, size_t registers) const {
    std::vector<Suffix> words(order_.begin(), order_.end());
    words.push_back(space_);
    if (!access_) words.push_back(word_of(kKinds, kind_));
    const bool is_half = dtype_ == float16 || dtype_ == bfloat16;
    if (is_half) words.push_back(Mod::noftz);
    if (registers > 1) words.push_back(registers == 2 ? Mod::v2 : registers == 4 ? Mod::v4 : Mod::v8);
    words.push_back(element_type(elements));
    return words;
  }

  ScalarType element_type(int64_t elements) const {
    const bool is_wide = dtype_.bits() == 64;
    if (kind_ == "add") {
      if (dtype_ == float32) return ScalarType::f32;
      if (dtype_ == float64) return ScalarType::f64;
      if (dtype_ == float16) return elements > 1 ? ScalarType::f16x2 : ScalarType::f16;
      if (dtype_ == bfloat16) return elements > 1 ? ScalarType::bf16x2 : ScalarType::bf16;
      return is_wide ? ScalarType::u64 : ScalarType::u32;  // two's complement adds alike
    }
    if (kind_ == "min" || kind_ == "max") return arithmetic_type(dtype_);
    return is_wide ? ScalarType::b64 : ScalarType::b32;
  }

  Generator& g_;
  const ir::Op& op_;
  Mod space_;
  DataType dtype_;
  std::string kind_;
  std::vector<Mod> order_;
  bool has_result_ = false;
  std::optional<Op> access_;  // st or ld in place of the update
};

layout::Layout staging_layout(const ir::Type& type) {
  return layout::row_major(type.shape, type.dtype.bits());
}

/// The old values are in the first copies; the others read them.
void share_with_copies(Generator& g, const ir::Op& op, RegisterTensor& result) {
  const SharedView staging{result.dtype, staging_layout(op.result()->type), g.scratch_offset(g.group()), {}};
  g.synchronize(g.group(), op);
  store_shared_tile(g, op, staging, result);
  g.synchronize(g.group(), op);
  result = load_shared_tile(g, op, staging, result.layout);
}

}  // namespace

int64_t atomic_scratch(const ir::Op& op) {
  const ir::Type& type = op.result()->type;
  return type.layout && type.layout->copies() > 1 ? staging_layout(type).bytes() : 0;
}

void emit_Atomic(Generator& g, const ir::Op& op) {
  const layout::Layout& layout = g.layout_of(op.result());
  const auto operand = [&](size_t i) {
    return in_layout(g, op, g.get<RegisterTensor>(op.operands[i]), layout);
  };
  const RegisterTensor value = operand(1);
  std::optional<RegisterTensor> compare;
  if (op.string_attr("kind") == "cas") compare = operand(2);
  const Tile tile(g, op, layout, value.group);
  const IndexedTile places(tile, compare ? 3 : 2);
  const Operand holds = holds_elements(g, value.group, tile.digits(), true);
  places.check_indices(holds);
  Update update(g, op, places.space());
  const DataType dtype = value.dtype;
  std::vector<Operand> old(static_cast<size_t>(layout.registers()), ptx::sink());
  places.with_vectors(update.most_elements(), update.has_result(), [&](int64_t vector, bool test_along) {
    places.rely_on_alignment(vector * dtype.bits() / 8);
    for (const RegisterRun& run : tile.runs(places.vector_digit(), vector)) {
      const Operand predicate = g.ints().both(holds, places.is_inside(run.first, test_along), g.e().depth());
      if (predicate.is_immediate() && predicate.value == 0) continue;
      const std::vector<int64_t> registers = run.registers();
      const std::vector<Operand> words = vector == 1 ? std::vector<Operand>{element(g, value, run.first)}
                                                     : gather_words(g, value, registers);
      std::optional<Operand> wanted;
      if (compare) wanted = element(g, *compare, run.first);
      const std::vector<Operand> before =
          update.emit(vector, places.address(run.first), words, wanted, predicate);
      if (before.empty()) continue;
      const std::vector<Operand> elements = vector == 1 ? before : unpack(g, dtype, before, vector);
      for (size_t i = 0; i < registers.size(); ++i) old[static_cast<size_t>(registers[i])] = elements[i];
    }
  });
  if (!update.has_result()) return;
  RegisterTensor result{dtype, layout, value.group, {}};
  const auto per_word = static_cast<size_t>(elements_per_word(dtype));
  for (size_t i = 0; i < old.size(); i += per_word) {
    const auto part = std::span(old).subspan(i, std::min(per_word, old.size() - i));
    if (part[0].kind == ptx::OperandKind::sink)
      part[0] = Operand(0);  // a register that holds nothing still is one
    result.words.push_back(pack(g, dtype, part));
  }
  if (layout.copies() > 1) share_with_copies(g, op, result);
  g.bind(op.result(), std::move(result));
}

namespace {

/// Runs `work` in the group's first thread alone.
template <class F>
void in_first_thread(Generator& g, F&& work) {
  Emitter& e = g.e();
  const Operand is_first = is_first_thread(g);
  const ptx::LabelId end = e.label("first_end");
  if (is_first.is_reg()) e.branch_unless(is_first.reg(), end);
  e.enter_scope();
  work();
  e.leave_scope();
  e.bind(end);
}

}  // namespace

void emit_AtomicItem(Generator& g, const ir::Op& op) {
  const DataType dtype = op.result()->type.dtype;
  const ElementAddress at = only_element(g, op);
  Update update(g, op, at.space);
  const Operand value = g.scalar(op.operands[1]);
  std::optional<Operand> compare;
  if (op.operands.size() > 2) compare = g.scalar(op.operands[2]);
  if (releases(op)) g.synchronize(g.group(), op);
  const std::vector<Operand> old = update.emit(1, at.address, std::array{value}, compare, is_first_thread(g));
  if (update.has_result()) g.bind(op.result(), from_first_thread(g, op, dtype, old[0]));
  if (acquires(op)) g.synchronize(g.group(), op);
}

void emit_SemaphoreWait(Generator& g, const ir::Op& op) {
  Emitter& e = g.e();
  const DataType dtype = op.operands[0]->type.dtype;
  const ElementAddress at = only_element(g, op);
  const Operand value = g.scalar(op.operands[1]);
  const std::string& mode = op.string_attr("mode");
  const Suffix order[] = {Mod::acquire, scope_of(g, op, at.space)};
  in_first_thread(g, [&] {
    const ptx::LabelId again = e.label("wait");
    e.enter_scope(true);
    e.bind(again);
    Reg done = e.reg(ScalarType::pred);
    if (mode == "lock") {
      const Reg old = e.reg(ScalarType::b32);
      const Operand operands[] = {old, at.address, e.to_register(ScalarType::b32, 0),
                                  e.to_register(ScalarType::b32, value)};
      const Suffix words[] = {order[0], order[1], at.space, Mod::cas, ScalarType::b32};
      e.emit(Op::atom, words, operands);
      e.emit(Op::setp, {Mod::eq, ScalarType::u32}, {done, old, 0});
    } else {
      const Operand now = load_scalar(g, dtype, at, order);
      e.emit(Op::setp, {mode == "equal" ? Mod::eq : Mod::ge, arithmetic_type(dtype)}, {done, now, value});
    }
    e.branch_unless(done, again);
    e.leave_scope();
  });
  g.synchronize(g.group(), op);
}

void emit_SemaphoreRelease(Generator& g, const ir::Op& op) {
  const ElementAddress at = only_element(g, op);
  const Operand value = g.scalar(op.operands[1]);
  const Suffix order[] = {Mod::release, scope_of(g, op, at.space)};
  g.synchronize(g.group(), op);
  in_first_thread(g, [&] { store_scalar(g, op.operands[0]->type.dtype, at, value, order); });
}

}  // namespace imbrex::codegen
