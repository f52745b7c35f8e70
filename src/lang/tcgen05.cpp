// SPDX-License-Identifier: Apache-2.0
#include "imbrex/lang/tcgen05.h"

#include <fmt/format.h>

#include "lang/tiles.h"

namespace imbrex::tcgen05 {

using lang::Instruction;

namespace {

void add_cta_group(std::vector<ir::Attr>& attrs, int cta_group) {
  if (cta_group != 1) attrs.push_back({"cta_group", int64_t{cta_group}});
}

/// Both forms; `scales` are the two sets of factors, or nothing.
void emit_mma(const Instruction& at, const Tensor& a_tensor, const SharedTensor& b_tensor,
              const TMemoryTensor& d_tensor, const std::vector<TMemoryTensor>& scales,
              const MmaOptions& options) {
  ir::Value* a = at.use(a_tensor.handle());
  ir::Value* b = at.use(b_tensor.handle());
  ir::Value* d = at.use(d_tensor.handle());
  ir::Value* enable = lang::condition(at, options.enable_input_d);
  std::vector<ir::Attr> attrs;
  add_cta_group(attrs, options.cta_group);
  if (options.negate_a) attrs.push_back({"negate_a", true});
  if (options.negate_b) attrs.push_back({"negate_b", true});
  if (!options.kind.empty()) attrs.push_back({"kind", std::string(options.kind)});
  std::vector<ir::Value*> operands{a, b, d, enable};
  for (const TMemoryTensor& scale : scales) operands.push_back(at.use(scale.handle()));
  at.emit(scales.empty() ? ir::Opcode::kTcgen05Mma : ir::Opcode::kTcgen05ScaledMma, std::move(operands), {},
          std::move(attrs));
}

}  // namespace

TMemoryTensor view(const TMemoryTensor& t, DataType dtype, const Shape& shape, SourceLocation where) {
  const Instruction at("tcgen05::view", where);
  return TMemoryTensor(at.handle(at.emit(ir::Opcode::kTcgen05View, {at.use(t.handle())},
                                         {ir::Type::tensor(ir::TypeKind::kTensorMemory, dtype, shape)},
                                         {{"dtype", dtype}, {"shape", shape}})
                                     ->result()));
}

TMemoryTensor alloc(DataType dtype, const Shape& shape, const AllocOptions& options, SourceLocation where) {
  const Instruction at("tcgen05::alloc", where);
  std::vector<ir::Attr> attrs = {{"dtype", dtype}, {"shape", shape}};
  add_cta_group(attrs, options.cta_group);
  ir::Value* result = at.emit(ir::Opcode::kTcgen05Alloc, {},
                              {ir::Type::tensor(ir::TypeKind::kTensorMemory, dtype, shape)}, std::move(attrs))
                          ->result();
  at.name_result(result);
  return TMemoryTensor(at.handle(result));
}

void dealloc(const TMemoryTensor& t, SourceLocation where) {
  const Instruction at("tcgen05::dealloc", where);
  at.emit(ir::Opcode::kTcgen05Dealloc, {at.use(t.handle())});
}

void relinquish_alloc_permit(const AllocOptions& options, SourceLocation where) {
  const Instruction at("tcgen05::relinquish_alloc_permit", where);
  std::vector<ir::Attr> attrs;
  add_cta_group(attrs, options.cta_group);
  at.emit(ir::Opcode::kTcgen05RelinquishAllocPermit, {}, {}, std::move(attrs));
}

void mma(const SharedTensor& a, const SharedTensor& b, const TMemoryTensor& d, const MmaOptions& options,
         SourceLocation where) {
  emit_mma(Instruction("tcgen05::mma", where), a, b, d, {}, options);
}

void mma(const TMemoryTensor& a, const SharedTensor& b, const TMemoryTensor& d, const MmaOptions& options,
         SourceLocation where) {
  emit_mma(Instruction("tcgen05::mma", where), a, b, d, {}, options);
}

void scaled_mma(const SharedTensor& a, const SharedTensor& b, const TMemoryTensor& d,
                const TMemoryTensor& scale_a, const TMemoryTensor& scale_b, const MmaOptions& options,
                SourceLocation where) {
  emit_mma(Instruction("tcgen05::scaled_mma", where), a, b, d, {scale_a, scale_b}, options);
}

void scaled_mma(const TMemoryTensor& a, const SharedTensor& b, const TMemoryTensor& d,
                const TMemoryTensor& scale_a, const TMemoryTensor& scale_b, const MmaOptions& options,
                SourceLocation where) {
  emit_mma(Instruction("tcgen05::scaled_mma", where), a, b, d, {scale_a, scale_b}, options);
}

void copy(const SharedTensor& src, const TMemoryTensor& dst, const CopyOptions& options,
          SourceLocation where) {
  const Instruction at("tcgen05::copy", where);
  std::vector<ir::Attr> attrs;
  add_cta_group(attrs, options.cta_group);
  at.emit(ir::Opcode::kTcgen05Copy, {at.use(src.handle()), at.use(dst.handle())}, {}, std::move(attrs));
}

void shift(const TMemoryTensor& t, const CopyOptions& options, SourceLocation where) {
  const Instruction at("tcgen05::shift", where);
  std::vector<ir::Attr> attrs;
  add_cta_group(attrs, options.cta_group);
  at.emit(ir::Opcode::kTcgen05Shift, {at.use(t.handle())}, {}, std::move(attrs));
}

void commit(const Barrier& barrier, const CommitOptions& options, SourceLocation where) {
  const Instruction at("tcgen05::commit", where);
  std::vector<ir::Attr> attrs;
  add_cta_group(attrs, options.cta_group);
  std::vector<ir::Value*> operands{at.use(barrier.handle())};
  if (ir::Value* mask = lang::multicast_mask(at, options.multicast_mask, attrs)) operands.push_back(mask);
  at.emit(ir::Opcode::kTcgen05Commit, std::move(operands), {}, std::move(attrs));
}

RegisterValue load(const TMemoryTensor& src, SourceLocation where) {
  const Instruction at("tcgen05::load", where);
  ir::Value* tensor = at.use(src.handle());
  return lang::result(at, at.emit(ir::Opcode::kTcgen05Load, {tensor},
                                  {lang::register_type(tensor->type.dtype, tensor->type.shape)}));
}

void wait_load(SourceLocation where) {
  Instruction("tcgen05::wait_load", where).emit(ir::Opcode::kTcgen05WaitLoad, {});
}

void store(const TMemoryTensor& dst, const TileArg& value, SourceLocation where) {
  const Instruction at("tcgen05::store", where);
  ir::Value* tensor = at.use(dst.handle());
  ir::Value* tile = lang::tile(at, value);
  at.emit(ir::Opcode::kTcgen05Store, {tensor, tile});
}

void wait_store(SourceLocation where) {
  Instruction("tcgen05::wait_store", where).emit(ir::Opcode::kTcgen05WaitStore, {});
}
void fence_before_thread_sync(SourceLocation where) {
  Instruction("tcgen05::fence_before_thread_sync", where).emit(ir::Opcode::kTcgen05FenceBefore, {});
}
void fence_after_thread_sync(SourceLocation where) {
  Instruction("tcgen05::fence_after_thread_sync", where).emit(ir::Opcode::kTcgen05FenceAfter, {});
}

}  // namespace imbrex::tcgen05
