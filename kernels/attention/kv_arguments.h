// SPDX-License-Identifier: Apache-2.0
// What launches pass for tensors of heads and for caches.
#pragma once

#include <cstdint>
#include <tuple>

#include "imbrex/kernels/attention.h"
#include "imbrex/kernels/attention/float8_operands.h"
#include "imbrex/runtime/device_tensor.h"

namespace imbrex {

/// Extent d of [batch, heads, rows, head size], and its stride; a tensor of three dimensions is one batch.
inline int64_t head_extent(const DeviceTensor& t, size_t d) {
  return t.shape().size() == 4 ? t.shape()[d] : d == 0 ? 1 : t.shape()[d - 1];
}
inline int64_t head_stride(const DeviceTensor& t, size_t d) {
  return head_extent(t, d) == 1 ? 0 : t.strides()[t.shape().size() == 4 ? d : d - 1];
}

/// What a launch passes for a tensor and HeadStrides.
struct HeadArguments {
  explicit HeadArguments(const DeviceTensor& t) : address(t.address()) {
    const int64_t unit = 16 / t.dtype().bytes();
    batch = head_stride(t, 0) / unit, head = head_stride(t, 1) / unit, row = head_stride(t, 2) / unit;
  }
  uint64_t address;
  int64_t batch, head, row;
  auto arguments() const { return std::tie(address, batch, head, row); }
};

/// What a launch passes for PackedSequences; null tensors: every batch is a sequence of its own.
struct PackedArguments {
  PackedArguments(const DeviceTensor& q_begins, const DeviceTensor& kv_begins, uint64_t any_address)
      : is_packed(!q_begins.shape().empty()),
        sequences(is_packed ? q_begins.shape()[0] - 1 : 0),
        q_begin(is_packed ? q_begins.address() : any_address),
        kv_begin(is_packed ? kv_begins.address() : any_address) {}
  bool is_packed;
  int64_t sequences;
  uint64_t q_begin, kv_begin;
  auto arguments() const { return std::tie(is_packed, sequences, q_begin, kv_begin); }
};

/// What a launch passes for Float8Scales; null tensors: the scales are 1. `heads_rank`: dimensions of scales of heads; those of
/// rows have one more.
struct Float8Arguments {
  Float8Arguments(int64_t heads, const DeviceTensor& q_scale, const DeviceTensor& k_scale,
                  const DeviceTensor& v_scale, uint64_t any_address, size_t heads_rank = 1)
      : of(q_scale.shape().empty()                ? kernels::Float8ScaleOf::kNothing
           : q_scale.shape().size() == heads_rank ? kernels::Float8ScaleOf::kHead
                                                  : kernels::Float8ScaleOf::kRows),
        heads(heads),
        q(q_scale.shape().empty() ? any_address : q_scale.address()),
        k(q_scale.shape().empty() ? any_address : k_scale.address()),
        v(q_scale.shape().empty() ? any_address : v_scale.address()) {}
  kernels::Float8ScaleOf of;
  int64_t heads;
  uint64_t q, k, v;
  auto arguments() const { return std::tie(of, heads, q, k, v); }
};

/// What a launch passes for CacheScales; null tensors: the scales are 1.
struct CacheScaleArguments {
  CacheScaleArguments(const DeviceTensor& k_scales, const DeviceTensor& v_scales, uint64_t any_address)
      : are_given(!k_scales.shape().empty()),
        k(are_given ? k_scales.address() : any_address),
        v(are_given ? v_scales.address() : any_address) {}
  bool are_given;
  uint64_t k, v;
  auto arguments() const { return std::tie(are_given, k, v); }
};

/// What a launch passes for LatentFloat8, of a cache at `address`.
struct LatentFloat8Arguments {
  LatentFloat8Arguments(bool is_there, uint64_t address, int64_t value_size)
      : is_there(is_there),
        scales(address + static_cast<uint64_t>(is_there ? value_size : 0)),
        rest(address +
             static_cast<uint64_t>(is_there ? latent_float8_row_bytes(value_size, value_size) : 0)) {}
  bool is_there;
  uint64_t scales, rest;
  auto arguments() const { return std::tie(is_there, scales, rest); }
};

/// What a launch passes for a KvCache. Null tensors: every sequence is as long as there is room, nothing is paged.
struct CacheArguments {
  CacheArguments(const DeviceTensor& k, const DeviceTensor& v, const DeviceTensor& lengths,
                 const DeviceTensor& table)
      : is_paged(!table.shape().empty()),
        has_lengths(!lengths.shape().empty()),
        pages(head_extent(k, 0)),
        rows_of_page(is_paged ? head_extent(k, 2) : 1),
        per_sequence(is_paged ? table.shape()[1] : head_extent(k, 2)),
        k(k),
        v(v),
        // Never read where there is none; a pointer must not be null.
        length_address(has_lengths ? lengths.address() : k.address()),
        table_address(is_paged ? table.address() : k.address()) {}
  bool is_paged, has_lengths;
  int64_t pages, rows_of_page, per_sequence;
  HeadArguments k, v;
  uint64_t length_address, table_address;
  auto arguments() const {
    return std::tuple_cat(std::tie(is_paged, has_lengths, pages, rows_of_page, per_sequence), k.arguments(),
                          v.arguments(), std::tie(length_address, table_address));
  }
};

}  // namespace imbrex
