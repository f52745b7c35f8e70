// SPDX-License-Identifier: Apache-2.0
// Misuse of cluster launch control, clusters, tensor memory and matrix descriptors that is known before a
// kernel runs: a compile error at the line at fault.
#include "imbrex/runtime/compile.h"
#include "layout/memory.h"
#include "message.h"

namespace imbrex {
namespace {

using testing::HasSubstr;

template <class F>
struct Misuse : F {
  static constexpr const char* target = "sm_100a";
  explicit Misuse(const F& f) : F(f) {}
};

/// Compiles `kernel(pointer, line)`, which notes the line at fault just before it.
template <class F>
void expect_refused(const F& body, std::initializer_list<const char*> parts) {
  int line = 0;
  const auto kernel = [&](Ptr<float32> pointer) {
    grid(8);
    body(pointer, line);
  };
  const std::string text = message_of<CompileError>([&] {
    emit_ptx(*Kernel<Misuse<decltype(kernel)>>(Misuse<decltype(kernel)>(kernel)).trace(uint64_t{0}));
  });
  EXPECT_THAT(text, HasSubstr("blackwell_misuse_test.cpp:" + std::to_string(line) + ": error: "));
  for (const char* part : parts) EXPECT_THAT(text, HasSubstr(part));
}

/// In one warp.
template <class F>
void in_warp(const F& body) {
  if (auto warp = single_warp()) body();
}

// --- cluster launch control ---

TEST(LaunchControlMisuse, AResponseIsSixteenBytesInOneWord) {
  expect_refused(
      [](auto, int& line) {
        auto response = shared_tensor(int32, {8});
        auto barrier = mbarrier::alloc(1);
        sync();
        in_warp([&] {
          line = __LINE__ + 1;
          clc::try_cancel(response, barrier);
        });
      },
      {"clc_try_cancel", "16 bytes", "int32 [8]", "kResponseShape"});
  expect_refused(
      [](auto, int& line) {
        auto room = shared_tensor(int32, {8});
        auto barrier = mbarrier::alloc(1);
        sync();
        in_warp([&] {
          line = __LINE__ + 1;
          clc::try_cancel(room.slice({2}, {4}), barrier);
        });
        clc::query(room.slice({2}, {4}));
      },
      {"multiple of 16 bytes", "of its own"});
}

TEST(LaunchControlMisuse, WhoAsksAndWhoIsTold) {
  expect_refused(
      [](auto, int& line) {
        auto response = shared_tensor(int32, clc::kResponseShape);
        auto barrier = mbarrier::alloc(1);
        sync();
        line = __LINE__ + 1;
        clc::try_cancel(response, barrier);
      },
      {"clc_try_cancel", "one warp or one thread", "128"});
  expect_refused(
      [](auto, int& line) {
        cluster(2);
        auto response = shared_tensor(int32, clc::kResponseShape);
        auto barrier = mbarrier::alloc(1);
        cluster_sync();
        auto other = remote_barrier(barrier, 1);
        in_warp([&] {
          line = __LINE__ + 1;
          clc::try_cancel(response, other);
        });
      },
      {"clc_try_cancel", "barrier of another CTA", "multicast"});
  expect_refused(
      [](auto pointer, int& line) {
        auto response = shared_tensor(int32, clc::kResponseShape);
        sync();
        line = __LINE__ + 1;
        auto answer = clc::query(response);
        if (auto arm = when(answer.is_canceled))
          store_global(global_view(pointer, {1}), zeros(float32, {1}), {0});
      },
      {"clc_query", "no clc_try_cancel requests"});
}

// --- clusters ---

TEST(ClusterMisuse, RanksAndMasksLieInTheCluster) {
  expect_refused(
      [](auto, int& line) {
        cluster(2);
        auto barrier = mbarrier::alloc(1);
        cluster_sync();
        line = __LINE__ + 1;
        auto other = remote_barrier(barrier, 2);
        mbarrier::arrive(other);
      },
      {"rank 2", "cluster of 2"});
  expect_refused(
      [](auto, int& line) {
        cluster(2);
        auto tile = shared_tensor(float32, {128});
        cluster_sync();
        line = __LINE__ + 1;
        store_remote_shared(tile, full(float32, {128}, 0), 2);
        cluster_sync();
      },
      {"store_shared", "rank 2", "cluster of 2"});
  expect_refused(
      [](auto, int& line) {
        cluster(2);
        auto t = tcgen05::alloc(float32, {128, 32}, {.cta_group = 2});
        auto barrier = mbarrier::alloc(1);
        cluster_sync();
        in_warp([&] {
          line = __LINE__ + 1;
          tcgen05::commit(barrier, {.cta_group = 2, .multicast_mask = 0b101});
        });
        cluster_sync();
        tcgen05::dealloc(t);
      },
      {"tcgen05_commit", "multicast_mask 0x5", "cluster of 2"});
  expect_refused(
      [](auto pointer, int& line) {
        auto tile = shared_tensor(float32, {8, 32});
        auto barrier = mbarrier::alloc(1);
        sync();
        in_warp([&] {
          auto g = global_view(pointer, {8, 32});
          line = __LINE__ + 1;
          tma::global_to_shared(g, tile, {0, 0}, barrier, {.multicast_mask = 3});
        });
      },
      {"tma_global_to_shared", "multicast_mask 0x3", "cluster of 1", "cluster()"});
  expect_refused(
      [](auto, int& line) {
        line = __LINE__ + 1;
        cluster(8, 4);
      },
      {"8 x 4 x 1", "1 to 16"});
}

TEST(ClusterMisuse, BarriersOfOtherCtas) {
  expect_refused(
      [](auto, int& line) {
        cluster(2);
        auto barrier = mbarrier::alloc(1);
        cluster_sync();
        line = __LINE__ + 1;
        mbarrier::wait(remote_barrier(barrier, 1), 0);
      },
      {"mbarrier_wait", "barrier of another CTA", "holds it"});
  expect_refused(
      [](auto pointer, int& line) {
        cluster(2);
        auto tile = shared_tensor(float32, {8, 32});
        auto barrier = mbarrier::alloc(1);
        cluster_sync();
        auto other = remote_barrier(barrier, 1);
        in_warp([&] {
          auto g = global_view(pointer, {8, 32});
          line = __LINE__ + 1;
          tma::global_to_shared(g, tile, {0, 0}, other);
        });
      },
      {"tma_global_to_shared", "another CTA's", "cta_group = 2"});
}

TEST(ClusterMisuse, TheWholeCtaMeetsTheCluster) {
  expect_refused(
      [](auto, int& line) {
        cluster(2);
        in_warp([&] {
          line = __LINE__ + 1;
          cluster_sync();
        });
      },
      {"cluster_sync", "every thread of the CTA", "warp 0"});
}

TEST(ClusterMisuse, Pairs) {
  expect_refused(
      [](auto, int& line) {
        line = __LINE__ + 1;
        auto t = tcgen05::alloc(float32, {128, 32}, {.cta_group = 2});
        sync();
        tcgen05::dealloc(t);
      },
      {"tcgen05_alloc", "pairs of CTAs", "the cluster has 1"});
  expect_refused(
      [](auto, int& line) {
        cluster(2);
        auto t = tcgen05::alloc(float32, {128, 32}, {.cta_group = 2});
        auto barrier = mbarrier::alloc(1);
        cluster_sync();
        in_warp([&] {
          line = __LINE__ + 1;
          tcgen05::commit(barrier);
        });
        cluster_sync();
        tcgen05::dealloc(t);
      },
      {"tcgen05_commit", "cta_group is 1, and 2 in tcgen05_alloc"});
  expect_refused(
      [](auto, int& line) {
        line = __LINE__ + 1;
        tcgen05::relinquish_alloc_permit({.cta_group = 3});
      },
      {"cta_group is 1 or 2, not 3"});
}

// --- tensor memory ---

TEST(TensorMemoryMisuse, EveryAllocationIsFreedOnce) {
  expect_refused(
      [](auto, int& line) {
        line = __LINE__ + 1;
        auto t = tcgen05::alloc(float32, {128, 32});
        tcgen05::store(t, zeros(float32, {128, 32}));
      },
      {"tcgen05_alloc", "%t is never freed", "dealloc()"});
  expect_refused(
      [](auto, int& line) {
        auto t = tcgen05::alloc(float32, {128, 32});
        sync();
        tcgen05::dealloc(t);
        line = __LINE__ + 1;
        tcgen05::dealloc(t);
      },
      {"tcgen05_dealloc", "has been freed before", "freed by tcgen05_dealloc at"});
  expect_refused(
      [](auto, int& line) {
        auto t = tcgen05::alloc(float32, {128, 32});
        sync();
        tcgen05::dealloc(t);
        line = __LINE__ + 1;
        tcgen05::store(t.slice({0, 0}, {128, 16}), zeros(float32, {128, 16}));
      },
      {"tcgen05_store", "after it was freed"});
  expect_refused(
      [](auto, int& line) {
        auto t = tcgen05::alloc(float32, {128, 32});
        line = __LINE__ + 1;
        tcgen05::dealloc(t.slice({0, 0}, {128, 16}));
      },
      {"frees a whole allocation"});
}

TEST(TensorMemoryMisuse, Loops) {
  expect_refused(
      [](auto, int& line) {
        for (Int32 i : range(4)) {
          line = __LINE__ + 1;
          auto t = tcgen05::alloc(float32, {128, 32});
          if (auto once = when(i == 100)) tcgen05::store(t, zeros(float32, {128, 32}));
        }
      },
      {"%t is never freed"});
  expect_refused(
      [](auto, int& line) {
        auto t = tcgen05::alloc(float32, {128, 32});
        sync();
        for ([[maybe_unused]] Int32 i : range(4)) {
          line = __LINE__ + 1;
          tcgen05::dealloc(t);
        }
      },
      {"second trip", "free it after the loop"});
}

TEST(TensorMemoryMisuse, Allocation) {
  expect_refused(
      [](auto, int& line) {
        tcgen05::relinquish_alloc_permit();
        line = __LINE__ + 1;
        auto t = tcgen05::alloc(float32, {128, 32});
        sync();
        tcgen05::dealloc(t);
      },
      {"permit to allocate has been given up", "tcgen05_relinquish_alloc_permit at"});
  expect_refused(
      [](auto, int& line) {
        auto small = tcgen05::alloc(float32, {128, 32});
        if (auto group = warp_group(0, 4)) {
          line = __LINE__ + 1;
          auto large = tcgen05::alloc(float32, {128, 128});
          sync();
          tcgen05::dealloc(large);
        }
        tcgen05::dealloc(small);
      },
      {"must not be larger than the one before it", "the larger tensor first"});
  expect_refused(
      [](auto, int& line) {
        line = __LINE__ + 1;
        auto t = tcgen05::alloc(float32, {200, 32});
        sync();
        tcgen05::dealloc(t);
      },
      {"200 rows", "128 lanes"});
  expect_refused(
      [](auto, int& line) {
        line = __LINE__ + 1;
        auto t = tcgen05::alloc(float32, {128, 1024});
        sync();
        tcgen05::dealloc(t);
      },
      {"1024 columns", "512"});
  expect_refused(
      [](auto, int& line) {
        if (auto thread = single_thread()) {
          line = __LINE__ + 1;
          auto t = tcgen05::alloc(float32, {128, 32});
          tcgen05::dealloc(t);
        }
      },
      {"tcgen05_alloc", "whole warps"});
}

TEST(TensorMemoryMisuse, LanesOfOtherWarps) {
  expect_refused(
      [](auto pointer, int& line) {
        auto t = tcgen05::alloc(float32, {128, 32});
        sync();
        in_warp([&] {
          line = __LINE__ + 1;
          auto r = tcgen05::load(t);
          store_global(global_view(pointer, {128, 32}), r, {0, 0});
        });
        sync();
        tcgen05::dealloc(t);
      },
      {"tcgen05_load", "whole warp groups", "warp_group"});
}

// --- products and descriptors ---

struct Operands {
  DataType a = float16, b = float16, d = float32;
  int64_t m = 128, n = 64, k = 64;
  int64_t rows_b = -1;  // k of b, where another
};

/// A product of these, K-major both; `annotate` may fix layouts.
template <class F>
void product(const Operands& o, int& line, const tcgen05::MmaOptions& options, const F& annotate) {
  auto a = shared_tensor(o.a, {o.m, o.k}), b = shared_tensor(o.b, {o.n, o.rows_b < 0 ? o.k : o.rows_b});
  annotate(a, b);
  auto d = tcgen05::alloc(o.d, {o.m, o.n});
  sync();
  in_warp([&] {
    line = __LINE__ + 1;
    tcgen05::mma(a, b.transpose(), d, options);
  });
  sync();
  tcgen05::dealloc(d);
}

void expect_product_refused(const Operands& o, std::initializer_list<const char*> parts,
                            const tcgen05::MmaOptions& options = {.enable_input_d = false}) {
  expect_refused([&](auto, int& line) { product(o, line, options, [](auto&, auto&) {}); }, parts);
}

TEST(ProductMisuse, ShapesAndTypes) {
  expect_product_refused({.m = 96}, {"m is 96", "64 or a multiple of 128"});
  expect_product_refused({.n = 60}, {"n is 60", "multiple of 8"});
  expect_product_refused({.k = 24}, {"k is 24", "multiple of 16"});
  expect_product_refused({.rows_b = 32}, {"inner sizes differ", "k = 64", "k = 32"});
  expect_product_refused({.b = bfloat16}, {"a holds float16, b holds bfloat16"});
  expect_product_refused({.b = float8_e4m3}, {"does not multiply float16 and float8_e4m3", "f8f6f4"});
  expect_product_refused({.a = int8, .b = int8}, {"int8 inputs do not accumulate in float32"});
  expect_product_refused({.a = bfloat16, .b = bfloat16, .d = float16}, {"bfloat16 inputs do not accumulate"});
  expect_product_refused({.a = int8, .b = int8, .d = int32}, {"8-bit integers are not negated"},
                         {.enable_input_d = false, .negate_a = true});
  expect_product_refused({.a = float8_e8m0, .b = float8_e8m0}, {"does not multiply float8_e8m0"});
}

TEST(ProductMisuse, LayoutsNoDescriptorReads) {
  // Padded rows; and 32-bit elements with m contiguous, which are read with atoms of 32 bytes only.
  expect_refused(
      [](auto, int& line) {
        product({}, line, {.enable_input_d = false}, [](SharedTensor& a, SharedTensor&) {
          annotate_layout(a, layout::padded_row_major({128, 64}, 16, 8));
        });
      },
      {"operand a as matrix descriptors read it"});
  expect_refused(
      [](auto, int& line) {
        product({.a = float32, .b = float32, .k = 32}, line, {.enable_input_d = false},
                [](SharedTensor& a, SharedTensor&) {
                  annotate_layout(a, layout::operand_tile({128, 32}, 32, {layout::Swizzle::k128B}, -2));
                });
      },
      {"operand a as matrix descriptors read it", "128B/32B only"});
  // Elements that the instruction reads 16 to 16 bytes, in a tile without gaps.
  expect_refused(
      [](auto, int& line) {
        product({.a = float4_e2m1, .b = float8_e4m3, .k = 256}, line, {.enable_input_d = false},
                [](SharedTensor& a, SharedTensor&) {
                  annotate_layout(a, layout::operand_tile({128, 256}, 4, {layout::Swizzle::k128B}));
                });
      },
      {"operand a as matrix descriptors read it", "4 bits apart", "8 bits apart"});
}

TEST(ProductMisuse, OperandsStartAtSixteenBytes) {
  expect_refused(
      [](auto, int& line) {
        auto a = shared_tensor(uint8, {128, 64}), b = shared_tensor(uint8, {64, 64});
        auto d = tcgen05::alloc(int32, {128, 64});
        sync();
        in_warp([&] {
          auto part = a.slice({0, block_idx.x * 8}, {128, 32});
          line = __LINE__ + 1;
          tcgen05::mma(part, b.slice({0, 0}, {64, 32}).transpose(), d, {.enable_input_d = false});
        });
        sync();
        tcgen05::dealloc(d);
      },
      {"a does not start at a multiple of 16 bytes"});
}

struct Scales {
  Operands o = {float8_e4m3, float8_e4m3, float32, 128, 128, 128};
  DataType a = float8_e8m0, b = float8_e8m0;
  int64_t rows_a = 128, rows_b = 128, blocks = 4, blocks_b = 4;
  std::string_view kind = {};
};

void expect_scaled_refused(const Scales& s, std::initializer_list<const char*> parts) {
  expect_refused(
      [&](auto, int& line) {
        auto a = shared_tensor(s.o.a, {s.o.m, s.o.k}), b = shared_tensor(s.o.b, {s.o.n, s.o.k});
        auto d = tcgen05::alloc(s.o.d, {s.o.m, s.o.n});
        auto scale_a = tcgen05::alloc(s.a, {s.rows_a, s.blocks});
        auto scale_b = tcgen05::alloc(s.b, {s.rows_b, s.blocks_b});
        sync();
        in_warp([&] {
          const tcgen05::MmaOptions options{.enable_input_d = false, .kind = s.kind};
          line = __LINE__ + 1;
          tcgen05::scaled_mma(a, b.transpose(), d, scale_a, scale_b, options);
        });
        sync();
        tcgen05::dealloc(scale_b);
        tcgen05::dealloc(scale_a);
        tcgen05::dealloc(d);
      },
      parts);
}

TEST(ProductMisuse, ScaleFactors) {
  expect_scaled_refused({.o = {float8_e4m3, float8_e4m3, float32, 64, 128, 128}, .rows_a = 64},
                        {"m is 64", "128 rows"});
  expect_scaled_refused({.blocks = 8, .blocks_b = 8},
                        {"no kind multiplies", "8 blocks of float8_e8m0", "for 32 elements"});
  expect_scaled_refused({.a = float8_ue4m3, .b = float8_ue4m3}, {"no kind multiplies", "float8_ue4m3"});
  expect_scaled_refused({.b = float8_ue4m3}, {"types and blocks must be the same"});
  expect_scaled_refused({.rows_a = 64}, {"scale_a is [64, 4]", "128 rows of a"});
  expect_scaled_refused({.rows_b = 96}, {"scale_b is [96, 4]", "128 columns of d"});
  expect_scaled_refused({.o = {float8_e4m3, float8_e4m3, float32, 128, 128, 64}, .blocks = 2, .blocks_b = 2},
                        {"scale_a is [128, 2]", "4 blocks"});
  expect_scaled_refused({.kind = "mxf4"}, {"kind mxf4 does not multiply float8_e4m3"});
  expect_scaled_refused({.kind = "mxfp8"}, {"unknown kind 'mxfp8'", "mxf8f6f4"});
}

TEST(CopyMisuse, WhatNoShapeWrites) {
  const auto copy = [](const Shape& from, const Shape& to, const layout::Layout* layout = nullptr) {
    return [=](auto, int& line) {
      auto s = shared_tensor(float32, from);
      auto t = tcgen05::alloc(float32, to);
      if (layout) annotate_layout(s, *layout);
      sync();
      in_warp([&] {
        line = __LINE__ + 1;
        tcgen05::copy(s, t);
      });
      sync();
      tcgen05::dealloc(t);
    };
  };
  expect_refused(copy({128, 8}, {128, 16}), {"tcgen05_copy", "[128, 8]", "[128, 16]"});
  expect_refused(copy({48, 8}, {48, 8}),
                 {"tcgen05_copy", "dst as tcgen05.cp writes it", "other lanes are used"});
  const layout::Layout padded = layout::padded_row_major({128, 8}, 32, 1);
  expect_refused(copy({128, 8}, {128, 8}, &padded), {"tcgen05_copy", "src as tcgen05.cp reads it"});
  expect_refused(
      [](auto, int& line) {
        auto t = tcgen05::alloc(float32, {128, 12});
        sync();
        in_warp([&] {
          line = __LINE__ + 1;
          tcgen05::shift(t);
        });
        sync();
        tcgen05::dealloc(t);
      },
      {"tcgen05_shift", "128 lanes", "[128, 12]"});
}

}  // namespace
}  // namespace imbrex
