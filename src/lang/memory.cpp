// SPDX-License-Identifier: Apache-2.0
#include "imbrex/lang/memory.h"

#include <fmt/format.h>

#include "lang/tiles.h"

namespace imbrex {

using lang::Instruction;

namespace {

void add_l1_priority(std::vector<ir::Attr>& attrs, L1Priority priority) {
  static constexpr const char* kWords[] = {"", "evict_first", "evict_normal", "evict_last", "no_allocate"};
  if (priority != L1Priority::kDefault)
    attrs.push_back({"l1_priority", std::string(kWords[static_cast<int>(priority)])});
}

int64_t known_extent(const ScalarArg& extent) { return lang::number(extent).value_or(ir::kDynamic); }

GlobalTensor view(const PtrArg& pointer, DataType dtype, const Scalars& shape, const Scalars* strides,
                  SourceLocation where) {
  const Instruction at("global_view", where);
  if (pointer.dtype != any_type && pointer.dtype != dtype)
    at.fail(fmt::format("a view of {} over a pointer to {}", dtype.name(), pointer.dtype.name()), {},
            "declare the parameter Ptr<> to view it as several types");
  if (dtype == any_type)
    at.fail("the pointer has no element type", {}, "give one: global_view(ptr, float16, {...})");
  if (shape.empty()) at.fail("the shape has no dimensions");
  if (strides && strides->size() != shape.size())
    at.fail(fmt::format("{} strides for {} dimensions", strides->size(), shape.size()));
  Shape extents;
  for (const ScalarArg& extent : shape) {
    extents.push_back(known_extent(extent));
    if (auto n = lang::number(extent); n && *n <= 0)
      at.fail(fmt::format("the extent of dimension {} is {}, not positive", extents.size() - 1, *n));
  }
  std::vector<ir::Value*> operands = lang::index_values(at, shape);
  if (strides) {
    for (ir::Value* stride : lang::index_values(at, *strides)) operands.push_back(stride);
  } else {
    // Row-major: each stride is the product of the extents behind it, in 64 bits where two or more multiply.
    std::vector<ir::Value*> reversed{at.constant(int32, 1)};
    int64_t known = 1;
    for (size_t d = shape.size() - 1; d > 0; --d) {
      known = known == ir::kDynamic || extents[d] == ir::kDynamic ? ir::kDynamic : known * extents[d];
      if (known != ir::kDynamic)
        reversed.push_back(lang::index_value(at, ScalarArg(known, where)));
      else if (reversed.size() == 1)
        reversed.push_back(operands[d]);
      else
        reversed.push_back(
            at.emit(ir::Opcode::kMul,
                    {lang::convert(at, operands[d], int64), lang::convert(at, reversed.back(), int64)},
                    {ir::Type::scalar(int64)})
                ->result());
    }
    operands.insert(operands.end(), reversed.rbegin(), reversed.rend());
  }
  operands.insert(operands.begin(), at.use(pointer.handle));
  ir::Value* result = at.emit(ir::Opcode::kGlobalView, std::move(operands),
                              {ir::Type::tensor(ir::TypeKind::kGlobal, dtype, extents)},
                              {{"rank", static_cast<int64_t>(shape.size())}})
                          ->result();
  at.name_result(result);
  return GlobalTensor(at.handle(result));
}

}  // namespace

void lang::add_cache_policy(std::vector<ir::Attr>& attrs, CachePolicy policy) {
  static constexpr const char* kWords[] = {"", "evict_first", "evict_normal", "evict_last"};
  if (policy != CachePolicy::kDefault)
    attrs.push_back({"cache_policy", std::string(kWords[static_cast<int>(policy)])});
}

GlobalTensor global_view(const PtrArg& pointer, const Scalars& shape, SourceLocation where) {
  return view(pointer, pointer.dtype, shape, nullptr, where);
}
GlobalTensor global_view(const PtrArg& pointer, const Scalars& shape, const Scalars& strides,
                         SourceLocation where) {
  return view(pointer, pointer.dtype, shape, &strides, where);
}
GlobalTensor global_view(const PtrArg& pointer, DataType dtype, const Scalars& shape, SourceLocation where) {
  return view(pointer, dtype, shape, nullptr, where);
}
GlobalTensor global_view(const PtrArg& pointer, DataType dtype, const Scalars& shape, const Scalars& strides,
                         SourceLocation where) {
  return view(pointer, dtype, shape, &strides, where);
}

detail::Handle detail::pointer_at(const ScalarArg& address, DataType dtype, SourceLocation where) {
  const Instruction at("pointer_at", where);
  if (dtype == any_type) at.fail("the pointer has no element type", {}, "give one: pointer_at<float16>(...)");
  ir::Value* value = lang::materialize(at, address);
  return at.handle(
      at.emit(ir::Opcode::kPointerAt, {value}, {ir::Type::pointer(dtype)}, {{"dtype", dtype}})->result());
}

void free_shared(const SharedTensor& tensor, SourceLocation where) {
  const Instruction at("free_shared", where);
  at.emit(ir::Opcode::kSharedFree, {at.use(tensor.handle())});
}

SharedTensor shared_tensor(DataType dtype, const Shape& shape, SourceLocation where) {
  const Instruction at("shared_tensor", where);
  ir::Value* result =
      at.emit(ir::Opcode::kSharedAlloc, {}, {ir::Type::tensor(ir::TypeKind::kShared, dtype, shape)},
              {{"dtype", dtype}, {"shape", shape}})
          ->result();
  at.name_result(result);
  return SharedTensor(at.handle(result));
}

RegisterValue load_global(const GlobalTensor& src, const Scalars& offsets, const Shape& shape,
                          const LoadOptions& options, SourceLocation where) {
  const Instruction at("load_global", where);
  ir::Value* tensor = at.use(src.handle());
  lang::check_shape(at, shape);
  Shape dims = lang::tile_dims(tensor, shape.size(), options.dims);
  std::vector<ir::Value*> operands = lang::index_values(at, offsets);
  operands.insert(operands.begin(), tensor);
  std::vector<ir::Attr> attrs = {{"shape", shape}, {"dims", std::move(dims)}};
  if (options.other != 0) attrs.push_back({"other", options.other});
  add_l1_priority(attrs, options.l1_priority);
  lang::add_cache_policy(attrs, options.cache_policy);
  return lang::result(at, at.emit(ir::Opcode::kLoadGlobal, std::move(operands),
                                  {lang::register_type(tensor->type.dtype, shape)}, std::move(attrs)));
}

void store_global(const GlobalTensor& dst, const TileArg& value, const Scalars& offsets,
                  const StoreOptions& options, SourceLocation where) {
  const Instruction at("store_global", where);
  ir::Value* tensor = at.use(dst.handle());
  ir::Value* tile = lang::tile(at, value);
  Shape dims = lang::tile_dims(tensor, tile->type.shape.size(), options.dims);
  std::vector<ir::Value*> operands = lang::index_values(at, offsets);
  operands.insert(operands.begin(), {tensor, tile});
  std::vector<ir::Attr> attrs = {{"dims", std::move(dims)}};
  add_l1_priority(attrs, options.l1_priority);
  lang::add_cache_policy(attrs, options.cache_policy);
  at.emit(ir::Opcode::kStoreGlobal, std::move(operands), {}, std::move(attrs));
}

RegisterValue load_shared(const SharedTensor& src, SourceLocation where) {
  const Instruction at("load_shared", where);
  ir::Value* tensor = at.use(src.handle());
  return lang::result(at, at.emit(ir::Opcode::kLoadShared, {tensor},
                                  {lang::register_type(tensor->type.dtype, tensor->type.shape)}));
}

void store_shared(const SharedTensor& dst, const TileArg& value, SourceLocation where) {
  const Instruction at("store_shared", where);
  ir::Value* tensor = at.use(dst.handle());
  ir::Value* tile = lang::tile(at, value);
  at.emit(ir::Opcode::kStoreShared, {tensor, tile});
}

void copy_async(const GlobalTensor& src, const SharedTensor& dst, const Scalars& offsets,
                const StoreOptions& options, SourceLocation where) {
  const Instruction at("copy_async", where);
  ir::Value* from = at.use(src.handle());
  ir::Value* to = at.use(dst.handle());
  Shape dims = lang::tile_dims(from, to->type.shape.size(), options.dims);
  std::vector<ir::Value*> operands = lang::index_values(at, offsets);
  operands.insert(operands.begin(), {from, to});
  if (options.l1_priority != L1Priority::kDefault)
    at.fail("cp.async takes no hint to the L1 cache", {}, "use cache_policy, that of the L2 cache");
  std::vector<ir::Attr> attrs = {{"dims", std::move(dims)}};
  lang::add_cache_policy(attrs, options.cache_policy);
  at.emit(ir::Opcode::kCopyAsync, std::move(operands), {}, std::move(attrs));
}

void copy_async_commit_group(SourceLocation where) {
  Instruction("copy_async_commit_group", where).emit(ir::Opcode::kCopyAsyncCommit, {});
}

void copy_async_wait_group(int64_t pending, SourceLocation where) {
  Instruction("copy_async_wait_group", where)
      .emit(ir::Opcode::kCopyAsyncWait, {}, {}, {{"pending", pending}});
}

void copy_async_wait_all(SourceLocation where) {
  Instruction("copy_async_wait_all", where).emit(ir::Opcode::kCopyAsyncWaitAll, {});
}

}  // namespace imbrex
