// SPDX-License-Identifier: Apache-2.0
// Layout inference on whole kernels: what tensors get, and what the author is told when demands clash.
#include "passes/layouts/infer_layouts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "imbrex/core/error.h"
#include "layout/memory.h"
#include "layout/queries.h"
#include "layout/registers.h"

namespace imbrex::passes {
namespace {

using layout::Layout;
using layout::Swizzle;

std::unique_ptr<ir::Function> kernel(const std::string& body, int warps = 4) {
  auto function = ir::parse(
      "kernel f(%n: int32, %i: int32, %b: bool, %one: int32, %zero: int32, %h: float16, %x: float32,\n"
      "         %p: ptr<float16>, %q: ptr<float32>) target sm_100a warps " +
      std::to_string(warps) + " from \"f.cpp\":1 {\n" + body + "\n}\n");
  ir::verify(*function);
  return function;
}

// The layouts a kernel's tensors get, by name.
class Inferred {
 public:
  explicit Inferred(const std::string& body, int warps = 4) : function_(kernel(body, warps)) {
    infer_layouts(*function_);
    ir::verify(*function_);
  }
  const Layout& operator[](const std::string& name) const {
    const ir::Value* found = nullptr;
    ir::walk(static_cast<const ir::Block&>(function_->body), [&](const ir::Op& op) {
      for (const ir::Value* result : op.results)
        if (result->name == name) found = result;
    });
    if (!found || !found->type.layout) throw std::runtime_error("no layout for " + name);
    return *found->type.layout;
  }
  ir::Function& function() { return *function_; }

 private:
  std::unique_ptr<ir::Function> function_;
};

// What the author is told, without the source quote.
std::string complaint(const std::string& body) {
  auto function = kernel(body);
  try {
    infer_layouts(*function);
  } catch (const CompileError& error) {
    const Diagnostic& d = error.diagnostics().front();
    std::string text = std::to_string(d.where.line) + ": " + d.message;
    for (const std::string& fact : d.facts) text += "\n  " + fact;
    return text + (d.help.empty() ? "" : "\n  help: " + d.help);
  }
  return "(no error)";
}

constexpr const char* kMatmulV0 = R"(
  %ga: global<float16, [?, 4096]> = global_view %p, %n, %n, %n, %one {rank = 2} @10
  %gc: global<float16, [?, 4096]> = global_view %p, %n, %n, %n, %one {rank = 2} @11
  %sa: shared<float16, [128, 64]> = shared_alloc {dtype = float16, shape = [128, 64]} @12
  %sb: shared<float16, [256, 64]> = shared_alloc {dtype = float16, shape = [256, 64]} @13
  %acc: tmem<float32, [128, 256]> = tcgen05_alloc {dtype = float32, shape = [128, 256]} @14
  for %k: int32 in %zero, %n, %one @15 {
    copy_async %ga, %sa, %zero, %k {dims = [0, 1]} @16
    copy_async %ga, %sb, %zero, %k {dims = [0, 1]} @17
    copy_async_wait_all @18
    sync @19
    thread_group {begin = 0, threads = 32} @20 {
      %sbt: shared<float16, [64, 256]> = permute %sb {dims = [1, 0]} @21
      tcgen05_mma %sa, %sbt, %acc, %b @22
    }
  }
  %r: register<float32, [128, 256]> = tcgen05_load %acc @23
  %c: register<float16, [128, 256]> = cast %r {dtype = float16} @24
  store_global %gc, %c, %zero, %zero {dims = [0, 1]} @25
)";

TEST(Kernels, MatmulV0) {
  Inferred f(kMatmulV0);
  EXPECT_EQ(f["sa"], layout::operand_tile({128, 64}, 16, {Swizzle::k128B}));
  EXPECT_EQ(f["sb"], layout::operand_tile({256, 64}, 16, {Swizzle::k128B}));
  EXPECT_EQ(f["sbt"], f["sb"].transpose());
  EXPECT_EQ(f["acc"], layout::accumulator(layout::AccumulatorLayout::kD, 256));
  EXPECT_EQ(f["r"], layout::tensor_memory_registers(layout::TensorMemoryShape::k32x32b, 4, 256));
  EXPECT_EQ(f["c"], f["r"]);
}

TEST(Kernels, RunningTwiceChangesNothing) {
  Inferred f(kMatmulV0);
  const std::string once = ir::print(f.function());
  infer_layouts(f.function());
  EXPECT_EQ(ir::print(f.function()), once);
  const auto reread = ir::parse(once);
  infer_layouts(*reread);
  EXPECT_EQ(ir::print(*reread), once) << "and what was printed is respected when read back";
}

TEST(Kernels, NarrowBlocksGetNarrowSwizzles) {
  for (auto [k, mode] :
       {std::pair{64, Swizzle::k128B}, {32, Swizzle::k64B}, {16, Swizzle::k32B}, {96, Swizzle::k64B}}) {
    const std::string ks = std::to_string(k);
    Inferred f("%s: shared<float16, [3, 128, " + ks +
               "]> = shared_alloc {dtype = float16, shape = [3, 128, " + ks +
               "]}\n%a: shared<float16, [128, " + ks + "]> = index %s, %i\n%t: shared<float16, [" + ks +
               ", 128]> = permute %a {dims = [1, 0]}\n"
               "%d: tmem<float32, [128, 128]> = tcgen05_alloc {dtype = float32, shape = [128, 128]}\n"
               "%g: global<float16, [?, ?]> = global_view %p, %n, %n, %n, %one {rank = 2}\n"
               "copy_async %g, %a, %zero, %zero {dims = [0, 1]}\n"
               "thread_group {begin = 0, threads = 32} { tcgen05_mma %a, %t, %d, %b }");
    EXPECT_EQ(f["s"], layout::operand_tile({3, 128, k}, 16, {mode})) << "k = " << k;
    EXPECT_EQ(f["a"], f["s"].without_leading());
  }
}

TEST(Kernels, MnMajorFollowsTheCopy) {
  // A is [k, m] in memory: cp.async makes m contiguous, the MMA reads it MN-major.
  Inferred f(R"(
    %g: global<float16, [?, 4096]> = global_view %p, %n, %n, %n, %one {rank = 2}
    %s: shared<float16, [64, 128]> = shared_alloc {dtype = float16, shape = [64, 128]}
    copy_async %g, %s, %zero, %zero {dims = [0, 1]}
    %a: shared<float16, [128, 64]> = permute %s {dims = [1, 0]}
    %sb: shared<float16, [64, 64]> = shared_alloc {dtype = float16, shape = [64, 64]}
    %d: tmem<float32, [128, 64]> = tcgen05_alloc {dtype = float32, shape = [128, 64]}
    thread_group {begin = 0, threads = 32} { tcgen05_mma %a, %sb, %d, %b }
  )");
  EXPECT_EQ(f["s"], layout::operand_tile({64, 128}, 16, {Swizzle::k128B}));
  EXPECT_EQ(f["a"], layout::operand_tile({128, 64}, 16, {Swizzle::k128B}, -2));
}

TEST(Kernels, AccumulatorsInStagesAndSlices) {
  // Two accumulators of 192 columns; the epilogue loads 32 columns at a run-time multiple of 32.
  Inferred f(R"(
    %c32: int32 = const {int = 32}
    %acc: tmem<float32, [2, 128, 192]> = tcgen05_alloc {dtype = float32, shape = [2, 128, 192]}
    %stage: tmem<float32, [128, 192]> = index %acc, %i
    for %j: int32 in %zero, %n, %c32 {
      %part: tmem<float32, [128, 32]> = slice %stage, %zero, %j {shape = [128, 32]}
      %r: register<float32, [128, 32]> = tcgen05_load %part
    }
  )");
  EXPECT_EQ(f["acc"].to_string(), "[2: 2c192, 128: 128l1, 192: 192c1; bits 32]");
  EXPECT_EQ(f["part"].to_string(), "[128: 128l1, 32: 32c1; bits 32]");
  EXPECT_EQ(f["r"].to_string(), "[128: 128t1, 32: 32r1]");
}

TEST(Kernels, TwoWarpGroupsSplitTheColumns) {
  Inferred f(R"(
    %acc: tmem<float32, [128, 96]> = tcgen05_alloc {dtype = float32, shape = [128, 96]}
    %r: register<float32, [128, 96]> = tcgen05_load %acc
  )",
             8);
  EXPECT_EQ(f["r"].to_string(), "[128: 128t1, 96: 2t128 48r1]");
}

TEST(Kernels, HalfPrecisionTensorMemory) {
  // As accumulator one element a column; as operand A packed.
  Inferred d(R"(
    %sa: shared<float16, [128, 64]> = shared_alloc {dtype = float16, shape = [128, 64]}
    %sb: shared<float16, [64, 64]> = shared_alloc {dtype = float16, shape = [64, 64]}
    %acc: tmem<float16, [128, 64]> = tcgen05_alloc {dtype = float16, shape = [128, 64]}
    %pa: tmem<float16, [128, 64]> = tcgen05_alloc {dtype = float16, shape = [128, 64]}
    %r: register<float16, [128, 64]> = tcgen05_load %acc
    tcgen05_store %pa, %r
    thread_group {begin = 0, threads = 32} {
      tcgen05_mma %sa, %sb, %acc, %b
      tcgen05_mma %pa, %sb, %acc, %b
    }
  )");
  EXPECT_EQ(d["acc"].columns(), 64);
  EXPECT_EQ(d["pa"].columns(), 32);
  EXPECT_EQ(d["r"].to_string(), "[128: 128t1, 64: 64r1]");
}

TEST(Kernels, SmallAccumulators) {
  const auto with = [&](const std::string& n, const std::string& group) {
    return "%sa: shared<float16, [64, 64]> = shared_alloc {dtype = float16, shape = [64, 64]}\n"
           "%sb: shared<float16, [64, " +
           n + "]> = shared_alloc {dtype = float16, shape = [64, " + n +
           "]}\n"
           "%acc: tmem<float32, [64, 64]> = tcgen05_alloc {dtype = float32, shape = [64, 64]}\n"
           "thread_group {begin = 0, threads = 32} { tcgen05_mma %sa, %sb, %acc, %b {cta_group = " +
           group + "} }";
  };
  EXPECT_EQ(Inferred(with("64", "1"))["acc"], layout::accumulator(layout::AccumulatorLayout::kF, 64));
  EXPECT_EQ(Inferred(with("32", "2"))["acc"], layout::accumulator(layout::AccumulatorLayout::kE, 64));
}

TEST(Kernels, VectorAddIsCoalesced) {
  Inferred f(R"(
    %g: global<float32, [?]> = global_view %q, %n, %one {rank = 1}
    %a: register<float32, [1024]> = load_global %g, %zero {shape = [1024], dims = [0]}
    %c: register<float32, [1024]> = load_global %g, %zero {shape = [1024], dims = [0]}
    %sum: register<float32, [1024]> = add %a, %c
    %scaled: register<float32, [1024]> = mul %sum, %x
    store_global %g, %scaled, %zero {dims = [0]}
  )");
  EXPECT_EQ(f["a"], layout::coalesced({1024}, 128, 32));
  for (const char* name : {"c", "sum", "scaled"}) EXPECT_EQ(f[name], f["a"]) << name;
}

TEST(Kernels, TransposedViewsAreCoalescedAlongMemory) {
  // The tile's first dimension runs along the contiguous dimension of memory.
  Inferred f(R"(
    %g: global<float16, [?, ?]> = global_view %p, %n, %n, %n, %one {rank = 2}
    %r: register<float16, [64, 32]> = load_global %g, %zero, %zero {shape = [64, 32], dims = [1, 0]}
    %gt: global<float16, [?, ?]> = permute %g {dims = [1, 0]}
    %s: register<float16, [64, 32]> = load_global %gt, %zero, %zero {shape = [64, 32], dims = [0, 1]}
  )");
  EXPECT_EQ(f["r"], layout::coalesced({32, 64}, 128, 16).transpose());
  EXPECT_EQ(f["s"], f["r"]);
}

TEST(Kernels, TransposesAreCoalescedOnBothSides) {
  Inferred f(R"(
    %g: global<float32, [?, ?]> = global_view %q, %n, %n, %n, %one {rank = 2}
    %s: shared<float32, [64, 64]> = shared_alloc {dtype = float32, shape = [64, 64]}
    %in: register<float32, [64, 64]> = load_global %g, %zero, %zero {shape = [64, 64], dims = [0, 1]}
    store_shared %s, %in
    %t: shared<float32, [64, 64]> = permute %s {dims = [1, 0]}
    %out: register<float32, [64, 64]> = load_shared %t
    store_global %g, %out, %zero, %zero {dims = [0, 1]}
  )");
  EXPECT_EQ(f["in"], layout::coalesced({64, 64}, 128, 32));
  EXPECT_EQ(f["out"], f["in"]);
  EXPECT_EQ(f["s"], layout::padded_row_major({64, 64}, 32, 1)) << "columns are spread over the banks";
}

TEST(Kernels, RowSoftmaxReducesAndBroadcasts) {
  Inferred f(R"(
    %g: global<float32, [?, 96]> = global_view %q, %n, %n, %n, %one {rank = 2}
    %a: register<float32, [32, 96]> = load_global %g, %zero, %zero {shape = [32, 96], dims = [0, 1]}
    %m: register<float32, [32, 1]> = reduce %a {axis = 1, kind = "max", keep = true}
    %s: register<float32, [32, 96]> = sub %a, %m
    %e: register<float32, [32, 96]> = exp %s
    %t: register<float32, [32]> = reduce %e {axis = 1, kind = "sum"}
    %t2: register<float32, [32, 1]> = reshape %t {shape = [32, 1]}
    %o: register<float32, [32, 96]> = div %e, %t2
    store_global %g, %o, %zero, %zero {dims = [0, 1]}
  )");
  EXPECT_EQ(f["m"], f["a"].reduce(1, true));
  EXPECT_EQ(f["t"], f["a"].reduce(1));
  EXPECT_EQ(f["o"], f["a"]);
  EXPECT_TRUE(layout::register_map(f["t2"], f["o"]).has_value());
}

TEST(Kernels, VariablesShareOneLayout) {
  Inferred f(R"(
    %acc: tmem<float32, [128, 32]> = tcgen05_alloc {dtype = float32, shape = [128, 32]}
    %z: register<float32, [128, 32]> = broadcast %x {shape = [128, 32]}
    %v: var<float32, [128, 32]> = var %z
    for %k: int32 in %zero, %n, %one {
      %old: register<float32, [128, 32]> = read %v
      %r: register<float32, [128, 32]> = tcgen05_load %acc
      %new: register<float32, [128, 32]> = add %old, %r
      assign %v, %new
    }
  )");
  EXPECT_EQ(f["z"].to_string(), "[128: 128t1, 32: 32r1]")
      << "the demand inside the loop reaches the initial value";
  for (const char* name : {"v", "old", "new"}) EXPECT_EQ(f[name], f["z"]) << name;
}

TEST(Kernels, BroadcastOperandsFollowTheResult) {
  Inferred f(R"(
    %acc: tmem<float32, [128, 32]> = tcgen05_alloc {dtype = float32, shape = [128, 32]}
    %g: global<float32, [?]> = global_view %q, %n, %one {rank = 1}
    %bias: register<float32, [32]> = load_global %g, %zero {shape = [32], dims = [0]}
    %r: register<float32, [128, 32]> = tcgen05_load %acc
    %o: register<float32, [128, 32]> = add %r, %bias
  )");
  EXPECT_EQ(f["bias"].to_string(), "[32: 32r1; rep 128t1]");
}

TEST(Kernels, EpilogueThroughSharedMemoryAvoidsConflicts) {
  // Every thread stores one row of 64 elements: row-major would put all lanes on the same banks.
  Inferred f(R"(
    %acc: tmem<float32, [128, 64]> = tcgen05_alloc {dtype = float32, shape = [128, 64]}
    %r: register<float32, [128, 64]> = tcgen05_load %acc
    %c: register<float16, [128, 64]> = cast %r {dtype = float16}
    %s: shared<float16, [128, 64]> = shared_alloc {dtype = float16, shape = [128, 64]}
    store_shared %s, %c
    sync
    %o: register<float16, [128, 64]> = load_shared %s
    %g: global<float16, [?, 4096]> = global_view %p, %n, %n, %n, %one {rank = 2}
    store_global %g, %o, %zero, %zero {dims = [0, 1]}
  )");
  EXPECT_EQ(f["s"], layout::operand_tile({128, 64}, 16, {Swizzle::k128B}));
  EXPECT_EQ(f["o"], layout::coalesced({128, 64}, 128, 16)) << "the load is free to be coalesced";
}

TEST(Kernels, OfLayoutsThatThreadsLikeAlikeTmaTakesTheOneOfFewestCopies) {
  // A row is 1 KB and a thread reads 16 bytes: no banks clash, swizzled or not, but a swizzled row would be eight boxes.
  Inferred f(R"(
    %g: global<uint32, [?, 256]> = global_view %p, %n, %n, %n, %one {rank = 2}
    %s: shared<uint32, [8, 256]> = shared_alloc {dtype = uint32, shape = [8, 256]}
    %bs: barrier[1] = mbarrier_alloc {counts = [1]}
    %ba: barrier = mbarrier_at %bs, %zero
    thread_group {begin = 0, threads = 32} {
      tma_global_to_shared %g, %s, %ba, %zero, %zero {dims = [0, 1]}
    }
    %r: register<uint32, [8, 256]> = load_shared %s
    %out: global<uint32, [?, 256]> = global_view %p, %n, %n, %n, %one {rank = 2}
    store_global %out, %r, %zero, %zero {dims = [0, 1]}
  )");
  EXPECT_EQ(f["s"], layout::row_major({8, 256}, 32));
}

TEST(Kernels, PlainSharedTensorsAreRowMajor) {
  Inferred f(R"(
    %s: shared<float32, [7, 9]> = shared_alloc {dtype = float32, shape = [7, 9]}
    %r: register<float32, [7, 9]> = load_shared %s
    store_shared %s, %r
  )");
  EXPECT_EQ(f["s"], layout::row_major({7, 9}, 32));
  EXPECT_EQ(f["r"].shape(), (layout::Shape{7, 9}));
}

TEST(Kernels, ViewsOfPlainTensorsKeepThemRowMajor) {
  Inferred f(R"(
    %s: shared<float32, [2, 64, 32]> = shared_alloc {dtype = float32, shape = [2, 64, 32]}
    %v: shared<float32, [64, 32]> = index %s, %i
    %r: register<float32, [64, 32]> = load_shared %v
    %c: register<float32, [2048]> = reshape %r {shape = [2048]}
  )");
  EXPECT_EQ(f["s"], layout::row_major({2, 64, 32}, 32));
  EXPECT_EQ(f["c"].shape(), (layout::Shape{2048}));
}

TEST(Annotations, AreRespected) {
  Inferred f(R"(
    %s: shared<float16, [64, 64]> = shared_alloc {dtype = float16, shape = [64, 64]}
    annotate_layout %s {layout = [64: 64a72, 64: 64a1]}
    %r: register<float16, [64, 64]> = load_shared %s
    annotate_layout %r {layout = [64: 4t32 2r2 8t4, 64: 8r4 4t1 2r1]}
    %e: register<float16, [64, 64]> = exp %r
  )");
  EXPECT_EQ(f["s"], layout::padded_row_major({64, 64}, 16, 8));
  EXPECT_EQ(f["e"], layout::wgmma_accumulator(64));
}

TEST(Annotations, RelayoutGivesAFreshChoice) {
  Inferred f(R"(
    %acc: tmem<float32, [128, 64]> = tcgen05_alloc {dtype = float32, shape = [128, 64]}
    %r: register<float32, [128, 64]> = tcgen05_load %acc
    %moved: register<float32, [128, 64]> = relayout %r
    %g: global<float32, [?, 4096]> = global_view %q, %n, %n, %n, %one {rank = 2}
    store_global %g, %moved, %zero, %zero {dims = [0, 1]}
    %given: register<float32, [128, 64]> = relayout %r {layout = [128: 128t1, 64: 64r1]}
  )");
  EXPECT_EQ(f["moved"], layout::coalesced({128, 64}, 128, 32));
  EXPECT_EQ(f["given"], f["r"]);
}

TEST(Clashes, AnnotationAgainstTheTensorCore) {
  EXPECT_EQ(
      complaint(R"(
    %s: shared<float16, [128, 64]> = shared_alloc {dtype = float16, shape = [128, 64]} @31
    annotate_layout %s {layout = [128: 128a64, 64: 64a1]} @32
    %sb: shared<float16, [64, 64]> = shared_alloc {dtype = float16, shape = [64, 64]} @33
    %d: tmem<float32, [128, 64]> = tcgen05_alloc {dtype = float32, shape = [128, 64]} @34
    thread_group {begin = 0, threads = 32} @40 { tcgen05_mma %s, %sb, %d, %b @41 }
  )"),
      "41: tcgen05_mma: no layout of %s meets this demand and another one\n"
      "  %s shared<float16, [128, 64]>, made at f.cpp:31\n"
      "  annotate_layout at f.cpp:32 wants exactly [128: 128a64, 64: 64a1; bits 16]: it would lie as [128: "
      "128a64, 64: 64a1; bits 16; swizzle 128B], not as [128: 128a64, 64: 64a1; bits 16]\n"
      "  tcgen05_mma at f.cpp:41 wants operand a as matrix descriptors read it: as K-major operand with "
      "swizzle "
      "none, element (1, 0) lies at byte 128, but a descriptor reads it at byte 16; as MN-major operand with "
      "swizzle none, element (1, 0) lies at byte 128, but a descriptor reads it at byte 2\n"
      "  help: use two tensors, or change one of the two");
}

// One thread's tile would have to be another's: a group of less than a warp cannot move it.
TEST(Clashes, RegistersNameBothDemands) {
  EXPECT_EQ(complaint(R"(
    thread_group {begin = 0, threads = 16} @20 {
      %r: register<float32, [16, 2]> = broadcast %x {shape = [16, 2]} @21
      annotate_layout %r {layout = [16: 16t1, 2: 2r1]} @22
      %t: register<float32, [16, 2]> = broadcast %x {shape = [16, 2]} @23
      annotate_layout %t {layout = [16: 2r1 8t1, 2: 2t8]} @24
      %sum: register<float32, [16, 2]> = add %r, %t @25
    }
  )"),
            "25: add: register layouts of %t and %sum differ, and data would have to move between threads\n"
            "  %t register<float32, [16, 2]>, made at f.cpp:23\n"
            "  %t is [16: 2r1 8t1, 2: 2t8] for annotate_layout at f.cpp:24: the annotated layout\n"
            "  %sum is [16: 16t1, 2: 2r1] for annotate_layout at f.cpp:22: the annotated layout\n"
            "  help: relayout one of them");
}

TEST(Clashes, ALayoutOfMoreThreadsThanThereAre) {
  EXPECT_EQ(complaint(R"(
    thread_group {begin = 0, threads = 16} @20 {
      %r: register<float32, [16, 2]> = broadcast %x {shape = [16, 2]} @21
      annotate_layout %r {layout = [16: 16t2, 2: 2t1]} @22
    }
  )"),
            "22: annotate_layout: the layout has 32 threads, this group 16\n"
            "  layout  [16: 16t2, 2: 2t1]\n"
            "  help: give each thread more elements, or the kernel more warps()");
}

// The ops of a block and the regions in it, one word each.
std::string ops_of(const ir::Function& function) {
  std::string out;
  ir::walk(function.body, [&](const ir::Op& op) { out += std::string(op.info().mnemonic) + " "; });
  return out;
}

TEST(Relayouts, AreInsertedWhereLayoutsOfAnOpDiffer) {
  Inferred f(R"(
    %acc: tmem<float32, [128, 32]> = tcgen05_alloc {dtype = float32, shape = [128, 32]} @20
    %r: register<float32, [128, 32]> = tcgen05_load %acc @21
    %t: register<float32, [128, 32]> = broadcast %x {shape = [128, 32]} @22
    annotate_layout %t {layout = [128: 32r4 4t32, 32: 4r1 8t1; rep 4t8]} @23
    %sum: register<float32, [128, 32]> = add %r, %t @24
  )");
  EXPECT_EQ(ops_of(f.function()), "tcgen05_alloc tcgen05_load relayout broadcast annotate_layout add ");
  EXPECT_EQ(f["r"], Layout::parse("[128: 128t1, 32: 32r1]"));
  EXPECT_EQ(f["sum"], f["t"]);
}

TEST(Relayouts, OfWhatALoopUsesStandBeforeTheLoop) {
  Inferred f(R"(
    %t: register<float32, [128, 4]> = broadcast %x {shape = [128, 4]} @20
    annotate_layout %t {layout = [128: 4r32 32t4, 4: 4t1]} @21
    %r: register<float32, [128, 4]> = broadcast %x {shape = [128, 4]} @22
    annotate_layout %r {layout = [128: 128t1, 4: 4r1]} @23
    %v: var<float32, [128, 4]> = var %t @24
    for %k: int32 in %zero, %n, %one @25 {
      %old: register<float32, [128, 4]> = read %v @26
      %sum: register<float32, [128, 4]> = add %old, %r @27
      %twice: register<float32, [128, 4]> = add %sum, %r @28
      assign %v, %twice @29
    }
  )");
  EXPECT_EQ(ops_of(f.function()),
            "broadcast annotate_layout broadcast relayout annotate_layout var for read add add assign ");
}

TEST(Relayouts, OfAnAnnotatedTensorAreForTheAuthorToWrite) {
  EXPECT_THAT(complaint(R"(
    %a: register<float16, [64, 16]> = broadcast %h {shape = [64, 16]} @10
    annotate_layout %a {layout = [64: 4r16 16t8, 16: 2r8 8t1]} @11
    %b0: register<float16, [16, 64]> = broadcast %h {shape = [16, 64]} @12
    %c: register<float32, [64, 64]> = broadcast %x {shape = [64, 64]} @13
    %d: register<float32, [64, 64]> = mma %a, %b0, %c @14
  )"),
              testing::StartsWith("14: mma: register layouts demanded of %a differ"));
}

TEST(Clashes, TwoDemandsOnOneValue) {
  EXPECT_THAT(complaint(R"(
    %acc: tmem<float32, [128, 32]> = tcgen05_alloc {dtype = float32, shape = [128, 32]} @20
    %r: register<float32, [128, 32]> = tcgen05_load %acc @21
    annotate_layout %r {layout = [128: 4r32 32t4, 32: 4t1 8r1]} @22
  )"),
              testing::StartsWith("21: tcgen05_load: register layouts demanded of %r differ"));
}

TEST(Clashes, PackedAndSpreadTensorMemory) {
  const std::string text = complaint(R"(
    %sa: shared<float16, [128, 64]> = shared_alloc {dtype = float16, shape = [128, 64]} @10
    %sb: shared<float16, [64, 64]> = shared_alloc {dtype = float16, shape = [64, 64]} @11
    %t: tmem<float16, [128, 64]> = tcgen05_alloc {dtype = float16, shape = [128, 64]} @12
    %d: tmem<float32, [128, 64]> = tcgen05_alloc {dtype = float32, shape = [128, 64]} @13
    thread_group {begin = 0, threads = 32} @14 {
      tcgen05_mma %sa, %sb, %t, %b @15
      tcgen05_mma %t, %sb, %d, %b @16
    }
  )");
  EXPECT_THAT(text, testing::HasSubstr("16: tcgen05_mma: no layout of %t meets this demand and another one"));
  EXPECT_THAT(text,
              testing::HasSubstr("tcgen05_mma at f.cpp:15 wants accumulator d as the tensor core writes it"));
  EXPECT_THAT(text,
              testing::HasSubstr("tcgen05_mma at f.cpp:16 wants operand a as the tensor core reads it"));
}

TEST(Clashes, ASingleImpossibleDemandSaysSo) {
  // No copy writes 48 lanes.
  const std::string text = complaint(R"(
    %s: shared<float32, [48, 8]> = shared_alloc {dtype = float32, shape = [48, 8]} @10
    %t: tmem<float32, [48, 8]> = tcgen05_alloc {dtype = float32, shape = [48, 8]} @12
    thread_group {begin = 0, threads = 32} @13 { tcgen05_copy %s, %t @14 }
  )");
  EXPECT_THAT(text,
              testing::StartsWith("14: tcgen05_copy: no layout of %t gives dst as tcgen05.cp writes it"));
  EXPECT_THAT(
      complaint("%t: tmem<float32, [200, 64]> = tcgen05_alloc {dtype = float32, shape = [200, 64]} @7"),
      testing::StartsWith("7: tcgen05_alloc: %t has 200 rows, tensor memory 128 lanes"));
}

TEST(Clashes, SlicesThatCutThroughTiles) {
  // Along the contiguous dimension of a tile two boxes wide, a run-time start must be a multiple of the box.
  const auto slice = [](const char* start) {
    return std::string(R"(
    %c64: int32 = const {int = 64} @9
    %i64: int32 = mul %i, %c64 @9
    %g: global<float16, [?, ?]> = global_view %p, %n, %n, %n, %one {rank = 2}
    %s: shared<float16, [128, 128]> = shared_alloc {dtype = float16, shape = [128, 128]} @10
    copy_async %g, %s, %zero, %zero {dims = [0, 1]} @11
    %part: shared<float16, [128, 64]> = slice %s, %zero, )") +
           start + R"( {shape = [128, 64]} @12
    %sb: shared<float16, [64, 64]> = shared_alloc {dtype = float16, shape = [64, 64]} @13
    %d: tmem<float32, [128, 64]> = tcgen05_alloc {dtype = float32, shape = [128, 64]} @14
    thread_group {begin = 0, threads = 32} @15 { tcgen05_mma %part, %sb, %d, %b @16 })";
  };
  EXPECT_EQ(complaint(slice("%i64")), "(no error)");
  const std::string text = complaint(slice("%i"));
  EXPECT_THAT(text, testing::HasSubstr("slice at f.cpp:12"));
}

// ---- mma.sync

constexpr const char* kMma = R"(
  %sa: shared<float16, [128, 64]> = shared_alloc {dtype = float16, shape = [128, 64]} @10
  %sb: shared<float16, [256, 64]> = shared_alloc {dtype = float16, shape = [256, 64]} @11
  %sbt: shared<float16, [64, 256]> = permute %sb {dims = [1, 0]} @12
  %zeros: register<float32, [128, 256]> = broadcast %x {shape = [128, 256]} @13
  %acc: var<float32, [128, 256]> = var %zeros @13
  %a: register<float16, [128, 64]> = load_shared %sa @14
  %b0: register<float16, [64, 256]> = load_shared %sbt @15
  %c: register<float32, [128, 256]> = read %acc @16
  %d: register<float32, [128, 256]> = mma %a, %b0, %c @16
  assign %acc, %d @16
)";

TEST(MmaLayouts, AreFragmentsAndMemoryIsSwizzledForThem) {
  const Inferred layouts(kMma, 8);
  // Boxes of 64 x 64 load least: 2 x 4 warps.
  const layout::MmaFragments wanted = layout::mma_tile(128, 256, 64, 16, 2, 4);
  EXPECT_EQ(layouts["a"], wanted.a);
  EXPECT_EQ(layouts["b0"], wanted.b);
  for (const char* name : {"zeros", "acc", "c", "d"}) EXPECT_EQ(layouts[name], wanted.c) << name;
  EXPECT_EQ(layouts["sa"].swizzle(), Swizzle{Swizzle::k128B});
  EXPECT_EQ(layouts["sb"].swizzle(), Swizzle{Swizzle::k128B});
}

TEST(MmaLayouts, WarpsMustBeAbleToShareTheProduct) {
  const char* tiny = R"(
  %a: register<float16, [16, 16]> = broadcast %h {shape = [16, 16]} @10
  %c: register<float32, [16, 16]> = broadcast %x {shape = [16, 16]} @11
  %d: register<float32, [16, 16]> = mma %a, %a, %c @12
)";
  EXPECT_EQ(complaint(tiny),
            "12: mma: 4 warps cannot share a 16 x 16 product\n"
            "  each takes a box of whole 16 x 8 blocks, of which there are 1 x 2\n"
            "  help: change the number of warps, or the product's extents");
  const char* few = R"(
  %a: register<float16, [16, 16]> = broadcast %h {shape = [16, 16]} @10
  %c: register<float32, [16, 16]> = broadcast %x {shape = [16, 16]} @11
  %d: register<float32, [16, 16]> = mma %a, %a, %c {warps_m = 1, warps_n = 2} @12
)";
  EXPECT_EQ(complaint(few),
            "12: mma: a grid of 1 x 2 warps, executed by 4\n"
            "  help: make warps_m * warps_n the number of warps in the thread group");
}

TEST(MmaLayouts, TwoGridsOverOneTileTakeItInTwoLayouts) {
  Inferred f(R"(
  %a: register<float16, [64, 16]> = broadcast %h {shape = [64, 16]} @10
  %b0: register<float16, [16, 64]> = broadcast %h {shape = [16, 64]} @11
  %c: register<float32, [64, 64]> = broadcast %x {shape = [64, 64]} @12
  %d: register<float32, [64, 64]> = mma %a, %b0, %c {warps_m = 4, warps_n = 1} @13
  %e: register<float32, [64, 64]> = mma %a, %b0, %d {warps_m = 2, warps_n = 2} @14
)");
  EXPECT_EQ(ops_of(f.function()), "broadcast relayout broadcast relayout broadcast mma relayout mma ");
}

}  // namespace
}  // namespace imbrex::passes
