// SPDX-License-Identifier: Apache-2.0
// Tensors: views, loads and stores, arithmetic on register tensors, barriers, tcgen05; and their errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "layout/layout.h"
#include "snippet.h"

namespace imbrex {
namespace {

using testing::error_of;
using ::testing::HasSubstr;
using testing::Pointer;
using testing::trace_snippet;
using testing::traced;

// --- global and shared memory ---

TEST(GlobalView, RowMajorUnlessStridesAreGiven) {
  const std::string text = traced([](Int32& m, Int32& n, Pointer& p) {
    [[maybe_unused]] auto rows = global_view(p, {m, 64});
    [[maybe_unused]] auto columns = global_view(p, {m, n}, {1, m});
    [[maybe_unused]] auto cube = global_view(p, {4, m, n});
    [[maybe_unused]] auto vector = global_view(p, float16, {n});
  });
  EXPECT_EQ(text,
            "%0: int32 = const {int = 64}\n"
            "%1: int32 = const {int = 1}\n"
            "%2: int32 = const {int = 64}\n"
            "%rows: global<float16, [?, 64]> = global_view %p, %m, %0, %2, %1 {rank = 2}\n"
            "%3: int32 = const {int = 1}\n"
            "%columns: global<float16, [?, ?]> = global_view %p, %m, %n, %3, %m {rank = 2}\n"
            "%4: int32 = const {int = 4}\n"
            "%5: int32 = const {int = 1}\n"
            "%6: int64 = cast %m {dtype = int64}\n"
            "%7: int64 = cast %n {dtype = int64}\n"
            "%8: int64 = mul %6, %7\n"
            "%cube: global<float16, [4, ?, ?]> = global_view %p, %4, %m, %n, %8, %n, %5 {rank = 3}\n"
            "%9: int32 = const {int = 1}\n"
            "%vector: global<float16, [?]> = global_view %p, %n, %9 {rank = 1}\n");
}

TEST(GlobalView, UntypedPointersTakeTheTypeOfTheView) {
  struct Kernel {
    void operator()(Ptr<> p) const {
      grid(1);
      auto halves = global_view(p, float16, {8});
      auto words = global_view(p, int32, {4});
      store_global(words, load_global(halves, {0}, {4}).to(int32), {0});
    }
  };
  auto function = lang::trace(Kernel{});
  ir::verify(*function);
  EXPECT_THAT(ir::print(*function), HasSubstr("%p: ptr<uint8>"));
}

TEST(Memory, TilesRunAlongTheLastDimensionsUnlessDimsSay) {
  const std::string text = traced([](Int32& m, Int32& n, Pointer& p) {
    auto g = global_view(p, {8, m, 64});
    auto s = shared_tensor(float16, {16, 32});
    auto x = load_global(g, {2, m, 0}, {16, 32});
    auto y = load_global(g, {2, m, 0}, {4}, {.other = 1.5, .dims = {0}});
    store_global(g, x, {n, 0, 0}, {.dims = {2, 1}});
    store_global(g, y, {n, 0, 0});
    copy_async(g, s, {0, 0, 0});
    copy_async_commit_group();
    copy_async_wait_group(1);
    copy_async_wait_all();
    store_shared(s, load_shared(s) + x);
  });
  EXPECT_THAT(text, HasSubstr("{shape = [16, 32], dims = [1, 2]}"));
  EXPECT_THAT(text, HasSubstr("{shape = [4], dims = [0], other = 1.5}"));
  EXPECT_THAT(text, HasSubstr("{dims = [2, 1]}"));
  EXPECT_THAT(text, HasSubstr("copy_async %g, %s, "));
  EXPECT_THAT(text, HasSubstr("copy_async_commit\ncopy_async_wait {pending = 1}\ncopy_async_wait_all\n"));
  EXPECT_THAT(text, HasSubstr("store_shared %s, "));
}

TEST(Views, KeepNoData) {
  const std::string text = traced([](Int32& m, Int32&, Pointer&) {
    auto stages = shared_tensor(float16, {3, 16, 64});
    SharedTensor first = stages[0];
    SharedTensor any = stages[m % 3];
    EXPECT_EQ(any.rank(), 2);
    EXPECT_EQ(any.shape(), (Shape{16, 64}));
    EXPECT_EQ(any.shape(-1), 64);
    EXPECT_EQ(any.nbytes(), 16 * 64 * 2);
    EXPECT_EQ(first.transpose().shape(), (Shape{64, 16}));
    EXPECT_EQ(stages.permute({2, 0, 1}).shape(), (Shape{64, 3, 16}));
    EXPECT_EQ(first.reshape({4, 4, 64}).rank(), 3);
    EXPECT_EQ(first.slice({0, m}, {16, 8}).shape(1), 8);
    EXPECT_EQ(first.dtype(), float16);
  });
  for (const char* op : {"index %stages, ", "permute ", "reshape ", "slice "})
    EXPECT_THAT(text, HasSubstr(op));
}

TEST(MemoryErrors, Views) {
  EXPECT_THAT(error_of([](Int32&, Int32&, Pointer& p) { global_view(p, float32, {8}); }),
              HasSubstr("global_view: a view of float32 over a pointer to float16"));
  EXPECT_THAT(error_of([](Int32&, Int32&, Pointer& p) { global_view(p, Scalars{}); }),
              HasSubstr("global_view: the shape has no dimensions"));
  EXPECT_THAT(error_of([](Int32& m, Int32&, Pointer& p) {
                global_view(p, {m, 8}, {8});
              }),
              HasSubstr("global_view: 1 strides for 2 dimensions"));
  EXPECT_THAT(error_of([](Int32&, Int32&, Pointer& p) {
                global_view(p, {8, -1});
              }),
              HasSubstr("global_view: the extent of dimension 1 is -1, not positive"));
  EXPECT_THAT(error_of([](Int32& m, Int32&, Pointer& p) { global_view(p, {m.to(float32)}); }),
              HasSubstr("float32 where an integer is wanted"));
  EXPECT_THAT(error_of([](Int32&, Int32&, Pointer&) {
                shared_tensor(float16, {8, 0});
              }),
              HasSubstr("shared_alloc: shape [8, 0] has no elements"));
  EXPECT_THAT(error_of([](Int32& m, Int32&, Pointer& p) {
                global_view(p, {m, 8}).shape(0);
              }),
              HasSubstr("shape: dimension 0 has an extent known only at run time"));
  EXPECT_THAT(error_of([](Int32& m, Int32&, Pointer& p) {
                global_view(p, {m, 8}).shape(2);
              }),
              HasSubstr("shape: dimension 2 of a tensor of 2 dimensions"));
  EXPECT_THAT(error_of([](Int32&, Int32&, Pointer&) {
                shared_tensor(float16, {2, 8})[2];
              }),
              HasSubstr("index: index 2 is outside 0 ... 1"));
  EXPECT_THAT(error_of([](Int32&, Int32&, Pointer&) { shared_tensor(float16, {8})[0][0]; }),
              HasSubstr("index: [] has no leading dimension to drop"));
  EXPECT_THAT(error_of([](Int32&, Int32&, Pointer&) {
                shared_tensor(float16, {8, 8}).slice({0}, {8, 8});
              }),
              HasSubstr("slice: [8, 8] takes 2 offsets"));
  EXPECT_THAT(error_of([](Int32&, Int32&, Pointer&) {
                shared_tensor(float16, {8, 8}).slice({0, 4}, {8, 8});
              }),
              HasSubstr("slice: dimension 1: 4 ... 11 is outside 0 ... 7"));
  EXPECT_THAT(error_of([](Int32&, Int32&, Pointer&) {
                shared_tensor(float16, {8, 8}).permute({0, 2});
              }),
              HasSubstr("permute: dims [0, 2] is not an order of 2 dimensions"));
  EXPECT_THAT(error_of([](Int32&, Int32&, Pointer&) { shared_tensor(float16, {8}).transpose(); }),
              HasSubstr("transpose: a tensor of fewer than two dimensions"));
  EXPECT_THAT(error_of([](Int32&, Int32&, Pointer&) {
                shared_tensor(float16, {8, 8}).reshape({65});
              }),
              HasSubstr("reshape: [8, 8] has 64 elements, [65] has 65"));
}

TEST(MemoryErrors, Transfers) {
  EXPECT_THAT(error_of([](Int32& m, Int32&, Pointer& p) {
                load_global(global_view(p, {m, 8}), {0}, {8, 8});
              }),
              HasSubstr("load_global: [?, 8] takes 2 offsets, there are 1"));
  EXPECT_THAT(error_of([](Int32& m, Int32&, Pointer& p) {
                load_global(global_view(p, {m, 8}), {0, 0}, {8, 8}, {.dims = {0, 0}});
              }),
              HasSubstr("load_global: dims [0, 0] must name different dimensions of [?, 8]"));
  EXPECT_THAT(error_of([](Int32& m, Int32&, Pointer& p) {
                load_global(global_view(p, {m}), {0}, {8, 8});
              }),
              HasSubstr("load_global: a tile of 2 dimensions, [8, 8], is more than the tensor [?] has"));
  EXPECT_THAT(error_of([](Int32& m, Int32&, Pointer& p) {
                store_global(global_view(p, {m}), zeros(float32, {8}), {0});
              }),
              HasSubstr("store_global: element types differ, dst holds float16 and value float32"));
  EXPECT_THAT(error_of([](Int32&, Int32&, Pointer&) {
                store_shared(shared_tensor(float16, {8}), zeros(float16, {16}));
              }),
              HasSubstr("store_shared: shapes differ, dst is [8] and value [16]"));
  EXPECT_THAT(error_of([](Int32& m, Int32&, Pointer& p) {
                copy_async(global_view(p, {m}), shared_tensor(float32, {8}), {0});
              }),
              HasSubstr("copy_async: element types differ, src holds float16 and dst float32"));
  EXPECT_THAT(error_of([](Int32&, Int32&, Pointer&) { copy_async_wait_group(-1); }),
              HasSubstr("copy_async_wait: pending is -1"));
}

// --- register tensors ---

TEST(Tiles, ArithmeticBroadcasts) {
  const std::string text = traced([](Int32& m, Int32&, Pointer& p) {
    auto x = load_global(global_view(p, {m, 64}), {0, 0}, {16, 64}).to(float32);
    auto row = load_global(global_view(p, {64}), {0}, {64}).to(float32);
    auto scaled = 2.0f * x + row * m;
    auto shifted = scaled - max(scaled, {.axis = 1, .keep = true});
    print_tensor(shifted, "shifted");
  });
  EXPECT_THAT(text, HasSubstr("float32 = const {float = 2.0}"));
  EXPECT_THAT(text, HasSubstr("float32 = cast %m {dtype = float32}"));  // the scalar takes the tensor's type
  EXPECT_THAT(text, HasSubstr("register<float32, [1, 64]> = reshape"));
  EXPECT_THAT(text, HasSubstr("register<float32, [16, 64]> = broadcast"));
  EXPECT_THAT(text, HasSubstr("register<float32, [16, 1]> = reduce"));
  EXPECT_THAT(text, HasSubstr("{axis = 1, kind = \"max\", keep = true}"));
  EXPECT_THAT(text, HasSubstr("print_tensor"));
}

TEST(Tiles, EveryFunction) {
  const std::string text = traced([](Int32&, Int32&, Pointer&) {
    auto x = full(float32, {8, 8}, 1.5);
    auto i = zeros(int32, {8, 8});
    auto y = exp(x) + exp2(x) + log(x) + sqrt(x) + rsqrt(x) + tanh(x) + sin(x) + abs(x) + fma(x, x, 1) + -x;
    auto z = min(x, y) + max(x, 0) + min(1, x) + max(2.0, y) + select(x < y, x, 0) + select(!(x == y), 1, y);
    auto bits = ((((i + 3) % 4) ^ i) & (i << 1)) | (i >> 2);
    auto both = any(x > 0 && y >= 0, {.axis = 0}) || all(x != y, {.axis = 0});
    auto total = sum(z.to(float16), {.axis = 0}) / 8;
    auto least = min(~bits, {.axis = -1});
    auto moved = relayout(z.transpose().permute({1, 0}).reshape({64}));
    EXPECT_EQ(both.dtype(), boolean);
    EXPECT_EQ(total.shape(), (Shape{8}));
    EXPECT_EQ(least.dtype(), int32);
    EXPECT_EQ(moved.shape(), (Shape{64}));
    EXPECT_EQ((x + x.to(float16)).dtype(), float32);
  });
  for (const char* op : {"exp ", "exp2 ", "log ", "sqrt ", "rsqrt ",  "tanh ",    "sin ", "abs ",
                         "fma ", "neg ",  "min ", "max ",  "select ", "and ",     "or ",  "xor ",
                         "shl ", "shr ",  "rem ", "not ",  "reduce ", "relayout "})
    EXPECT_THAT(text, HasSubstr(std::string(" = ") + op));
}

TEST(Tiles, VariablesAreAssignedInLoops) {
  const std::string text = traced([](Int32& m, Int32&, Pointer& p) {
    auto g = global_view(p, {m, 64});
    RegisterTensor acc = zeros(float32, {16, 64});
    RegisterTensor constant = zeros(float32, {16, 64});
    for (Int32 i : range(0, m, 16)) {
      acc += load_global(g, {i, 0}, {16, 64});
      acc = acc * 0.5f + constant;
      acc = 0;
    }
    store_global(g, acc.to(float16), {0, 0});
  });
  EXPECT_THAT(text, HasSubstr("%acc: var<float32, [16, 64]> = var"));
  EXPECT_THAT(text, HasSubstr("assign %acc, "));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("%constant: var")));
  EXPECT_THAT(text, HasSubstr("register<float32, [16, 64]> = cast"));  // float16 loads into a float32 sum
}

TEST(Tiles, RegisterTensorTabulates) {
  const std::string text = traced([](Int32& m, Int32&, Pointer&) {
    [[maybe_unused]] auto mask =
        register_tensor(boolean, {16, 32}, [&](auto i, auto j) { return j <= i + m; });
    [[maybe_unused]] auto iota = register_tensor(float32, {8}, [&](auto i) { return i * 2; });
    [[maybe_unused]] auto cube = register_tensor(int32, {2, 3, 4}, [&](auto i, auto, auto k) {
      Int32 twice = 2 * k;
      return i + twice;
    });
  });
  EXPECT_EQ(text,
            "%mask: register<bool, [16, 32]> = tabulate %0: int32, %1: int32 in {dtype = bool, shape = [16, "
            "32]} {\n"
            "  %2: int32 = add %0, %m\n"
            "  %3: bool = le %1, %2\n"
            "  yield %3\n"
            "}\n"
            "%iota: register<float32, [8]> = tabulate %4: int32 in {dtype = float32, shape = [8]} {\n"
            "  %5: int32 = const {int = 2}\n"
            "  %6: int32 = mul %4, %5\n"
            "  %7: float32 = cast %6 {dtype = float32}\n"
            "  yield %7\n"
            "}\n"
            "%cube: register<int32, [2, 3, 4]> = tabulate %8: int32, %9: int32, %10: int32 in {dtype = "
            "int32, shape "
            "= [2, 3, 4]} {\n"
            "  %11: int32 = const {int = 2}\n"
            "  %twice: int32 = mul %11, %10\n"
            "  %12: int32 = add %8, %twice\n"
            "  yield %12\n"
            "}\n");
}

TEST(TileErrors, Shapes) {
  const std::string error = error_of([](Int32&, Int32&, Pointer&) {
    auto a = zeros(float32, {16, 64});
    auto b = zeros(float32, {32});
    a + b;
  });
  EXPECT_THAT(error, HasSubstr("error: +: shapes [16, 64] and [32] do not broadcast"));
  EXPECT_THAT(error, HasSubstr("a: register<float32, [16, 64]>, made at"));
  EXPECT_THAT(error, HasSubstr("b: register<float32, [32]>, made at"));
  EXPECT_THAT(error_of([](Int32&, Int32&, Pointer&) {
                RegisterTensor x = zeros(float32, {8});
                x = zeros(float32, {2, 8});
              }),
              AllOf(HasSubstr("=: [2, 8] does not broadcast to [8]"),
                    HasSubstr("a variable keeps the shape of its first value")));
  EXPECT_THAT(error_of([](Int32&, Int32&, Pointer&) {
                zeros(float32, {8, -8});
              }),
              HasSubstr("full: the shape [8, -8] has an extent that is not positive"));
  EXPECT_THAT(error_of([](Int32&, Int32&, Pointer&) { random_uniform(1, zeros(float32, {8})); }),
              HasSubstr("the counter numbers the elements"));
  EXPECT_THAT(error_of([](Int32&, Int32&, Pointer&) { sum(zeros(float32, {8}), {.axis = 1}); }),
              HasSubstr("sum: axis 1 of a tensor of 1 dimensions"));
  EXPECT_THAT(
      error_of([](Int32&, Int32&, Pointer&) { annotate_layout(zeros(float32, {8}), layout::local({4})); }),
      HasSubstr("annotate_layout: the tensor is [8], the layout [4]"));
}

TEST(TileErrors, Slices) {
  const auto fails = [](const auto& body) { return error_of(body); };
  EXPECT_THAT(fails([](Int32&, Int32&, Pointer&) {
                zeros(float32, {16, 16}).slice({0, 8}, {16, 16});
              }),
              HasSubstr("slice: dimension 1: 8 ... 23 is outside 0 ... 15"));
  EXPECT_THAT(fails([](Int32&, Int32&, Pointer&) {
                zeros(float32, {16, 16}).slice({0}, {16, 8});
              }),
              HasSubstr("slice: [16, 16] takes 2 offsets"));
}

TEST(TileErrors, Types) {
  EXPECT_THAT(error_of([](Int32&, Int32&, Pointer&) { zeros(float16, {8}) + zeros(bfloat16, {8}); }),
              HasSubstr("+: float16 and bfloat16 have no common type"));
  EXPECT_THAT(error_of([](Int32&, Int32&, Pointer&) { zeros(int32, {8}) + 0.5; }),
              HasSubstr("+: 0.5 where int32 is wanted"));
  EXPECT_THAT(error_of([](Int32&, Int32&, Pointer&) { zeros(float32, {8}) % 2; }),
              HasSubstr("%: works on integers, not on float32"));
  EXPECT_THAT(error_of([](Int32&, Int32&, Pointer&) { exp(zeros(int32, {8})); }),
              HasSubstr("exp: works on floating tensors, not on int32"));
  EXPECT_THAT(error_of([](Int32&, Int32&, Pointer&) { any(zeros(int32, {8}), {.axis = 0}); }),
              HasSubstr("any: works on bool tensors, not on int32"));
  EXPECT_THAT(error_of([](Int32&, Int32&, Pointer&) { select(zeros(int32, {8}), 1, 2); }),
              HasSubstr("select: the condition is int32, not bool"));
  EXPECT_THAT(error_of([](Int32&, Int32&, Pointer&) { (void)(zeros(boolean, {8}) + 1); }),
              HasSubstr("+: 1 where a bool is wanted"));
  EXPECT_THAT(error_of([](Int32&, Int32&, Pointer&) { (void)(zeros(int32, {8}) && zeros(int32, {8})); }),
              HasSubstr("&&: works on bool tensors, not on int32"));
}

TEST(TileErrors, Tabulation) {
  EXPECT_THAT(error_of([](Int32&, Int32&, Pointer&) {
                register_tensor(int32, {8, 8}, [](auto i) { return i; });
              }),
              HasSubstr("register_tensor: the function takes 1 indices, the shape [8, 8] has 2 dimensions"));
  EXPECT_THAT(error_of([](Int32&, Int32&, Pointer&) {
                register_tensor(int32, {8}, [](auto i) {
                  sync();
                  return i;
                });
              }),
              HasSubstr("sync: not inside register_tensor's function"));
}

TEST(TileErrors, AfterItsScope) {
  const std::string error = error_of([](Int32& m, Int32&, Pointer&) {
    std::optional<SharedTensor> kept;
    for (Int32 i : range(m)) {
      auto tile = shared_tensor(float16, {8});
      kept.emplace(tile);
      check(i >= 0);
    }
    load_shared(*kept);
  });
  EXPECT_THAT(error, HasSubstr("load_shared: 'tile' is used after its scope has ended"));
  EXPECT_THAT(error, HasSubstr("shared<float16, [8]>"));
}

// --- barriers, fences, printing ---

TEST(Mbarrier, EveryFunction) {
  const std::string text = traced([](Int32& m, Int32&, Pointer&) {
    auto pair = mbarrier::alloc({1, 32});
    auto ring = mbarrier::alloc(std::vector<int64_t>(3, 1));
    Barrier one = mbarrier::alloc(4);
    EXPECT_EQ(ring.size(), 3);
    mbarrier::arrive(pair[1]);
    mbarrier::arrive(one, {.count = 2, .sem = Sem::kRelaxed});
    mbarrier::wait(ring[m % 3], mbarrier::producer_initial_phase,
                   {.sem = Sem::kRelaxed, .scope = Scope::kCta});
    mbarrier::wait(one, m & 1, {.scope = Scope::kCluster});
    if (auto thread = single_thread()) {
      mbarrier::arrive_and_expect_tx(pair[0], 4096);
      mbarrier::expect_tx(pair[0], m * 2);
    }
    fence::proxy_async();
    fence::proxy_async(fence::Space::kAll);
  });
  EXPECT_THAT(text, HasSubstr("%pair: barrier[2] = mbarrier_alloc {counts = [1, 32]}"));
  EXPECT_THAT(text, HasSubstr("%ring: barrier[3] = mbarrier_alloc {counts = [1, 1, 1]}"));
  EXPECT_THAT(text, HasSubstr("mbarrier_at %ring, "));
  EXPECT_THAT(text, HasSubstr("{count = 2, sem = \"relaxed\", scope = \"cta\"}"));
  EXPECT_THAT(text, HasSubstr("{sem = \"relaxed\", scope = \"cta\"}"));
  EXPECT_THAT(text, HasSubstr("{sem = \"acquire\", scope = \"cluster\"}"));
  EXPECT_THAT(text, HasSubstr("mbarrier_arrive_expect_tx "));
  EXPECT_THAT(text, HasSubstr("mbarrier_expect_tx "));
  EXPECT_THAT(text,
              HasSubstr("fence_proxy_async {space = \"shared\"}\nfence_proxy_async {space = \"all\"}\n"));
}

TEST(MbarrierErrors, Arguments) {
  EXPECT_THAT(error_of([](Int32&, Int32&, Pointer&) {
                mbarrier::alloc({1, 0});
              }),
              HasSubstr("mbarrier_alloc: arrival count 0 is outside 1 ... 1048575"));
  EXPECT_THAT(error_of([](Int32&, Int32&, Pointer&) { mbarrier::alloc(std::vector<int64_t>()); }),
              HasSubstr("mbarrier_alloc: needs at least one arrival count"));
  EXPECT_THAT(error_of([](Int32&, Int32&, Pointer&) {
                mbarrier::alloc({1, 1})[2];
              }),
              HasSubstr("mbarrier_at: index 2 is outside 0 ... 1"));
  EXPECT_THAT(error_of([](Int32&, Int32&, Pointer&) { mbarrier::wait(mbarrier::alloc(1), 2); }),
              HasSubstr("mbarrier::wait: phase 2; a parity is 0 or 1"));
  EXPECT_THAT(error_of([](Int32&, Int32&, Pointer&) {
                mbarrier::wait(mbarrier::alloc(1), 0, {.sem = Sem::kRelease});
              }),
              HasSubstr("mbarrier_wait: sem is 'release'"));
  EXPECT_THAT(error_of([](Int32&, Int32&, Pointer&) { mbarrier::expect_tx(mbarrier::alloc(1), 1 << 20); }),
              HasSubstr("mbarrier_expect_tx: 1048576 bytes are outside 0 ... 1048575"));
}

TEST(Printf, ChecksItsFormat) {
  const std::string text =
      traced([](Int32& m, Int32& n, Pointer&) { printf("%d of %5u: %.3f%%\n", m, n, 0.5); });
  EXPECT_THAT(text, HasSubstr("uint32 = cast %n {dtype = uint32}"));
  EXPECT_THAT(text, HasSubstr("float64 = const {float = 0.5}"));
  EXPECT_THAT(text, HasSubstr("printf %m, "));
  EXPECT_THAT(error_of([](Int32& m, Int32&, Pointer&) { printf("%d %d", m); }),
              HasSubstr("printf: the format has 2 conversions, 1 arguments are given"));
  EXPECT_THAT(error_of([](Int32& m, Int32&, Pointer&) { printf("%f", m); }),
              HasSubstr("printf: argument 1 is int32, its conversion is %f"));
  EXPECT_THAT(error_of([](Int32& m, Int32&, Pointer&) { printf("%d", m.to(int64)); }),
              HasSubstr("printf: argument 1 is int64, its conversion is %d"));
  EXPECT_THAT(error_of([](Int32& m, Int32&, Pointer&) { printf("%s", m); }),
              HasSubstr("printf: unknown conversion '%s'"));
}

// --- tcgen05 ---

TEST(Tcgen05, EveryFunction) {
  const std::string text = traced([](Int32& m, Int32&, Pointer&) {
    auto a = shared_tensor(float16, {128, 64});
    auto b = shared_tensor(float16, {96, 64});
    auto acc = tcgen05::alloc(float32, {2, 128, 96});
    auto left = tcgen05::alloc(float16, {128, 64});
    auto done = mbarrier::alloc(1);
    tcgen05::relinquish_alloc_permit();
    if (auto warp = single_warp()) {
      tcgen05::mma(a, b.transpose(), acc[0], {.enable_input_d = m != 0});
      tcgen05::mma(left, b.transpose(), acc[1], {.enable_input_d = false, .negate_a = true});
      tcgen05::commit(done);
      tcgen05::commit(done, {.multicast_mask = 3});
    }
    auto x = tcgen05::load(acc[0].slice({0, 16}, {128, 32}));
    tcgen05::wait_load();
    tcgen05::fence_before_thread_sync();
    sync();
    tcgen05::fence_after_thread_sync();
    tcgen05::store(acc[1].slice({0, 0}, {128, 32}), x);
    tcgen05::wait_store();
    tcgen05::dealloc(acc);
    tcgen05::dealloc(left);
  });
  for (const char* op :
       {"%acc: tmem<float32, [2, 128, 96]> = tcgen05_alloc", "tcgen05_relinquish_alloc_permit",
        "tcgen05_mma %a, ", "tcgen05_mma %left, ", "{negate_a = true}", "tcgen05_commit ",
        "{multicast_mask = 3}", "tcgen05_load ", "tcgen05_wait_load", "tcgen05_fence_before_thread_sync",
        "tcgen05_fence_after_thread_sync", "tcgen05_store ", "tcgen05_wait_store", "tcgen05_dealloc %acc"})
    EXPECT_THAT(text, HasSubstr(op));
}

TEST(Tcgen05Errors, InnerSizes) {
  const std::string error = error_of([](Int32&, Int32&, Pointer&) {
    auto a = shared_tensor(float16, {128, 64});
    auto b = shared_tensor(float16, {128, 64});
    auto acc = tcgen05::alloc(float32, {128, 128});
    tcgen05::mma(a, b, acc, {.enable_input_d = false});
  });
  EXPECT_THAT(error, HasSubstr("tcgen05_mma: inner sizes differ, a has k = 64 and b has k = 128"));
  EXPECT_THAT(error, HasSubstr("a    shared<float16, [128, 64]>  %a  made at"));
  EXPECT_THAT(error, HasSubstr("tcgen05::mma(a, b, acc, {.enable_input_d = false});"));
  EXPECT_THAT(error, HasSubstr("help: transpose b: it is [k, n]"));
}

TEST(Tcgen05Errors, Others) {
  EXPECT_THAT(error_of([](Int32&, Int32&, Pointer&) { tcgen05::alloc(float32, {128}); }),
              HasSubstr("tcgen05_alloc: shape [128] is not [..., lanes, columns]"));
  EXPECT_THAT(error_of([](Int32&, Int32&, Pointer&) {
                tcgen05::alloc(float32, {128, 64}, {.cta_group = 3});
              }),
              HasSubstr("tcgen05_alloc: cta_group is 1 or 2, not 3"));
  EXPECT_THAT(error_of([](Int32&, Int32&, Pointer&) {
                tcgen05::dealloc(tcgen05::alloc(float32, {2, 128, 64})[0]);
              }),
              HasSubstr("tcgen05_dealloc: frees a whole allocation"));
  EXPECT_THAT(error_of([](Int32& m, Int32&, Pointer&) {
                auto a = shared_tensor(float16, {128, 64});
                auto acc = tcgen05::alloc(float32, {128, 128});
                tcgen05::mma(a, a.transpose(), acc, {.enable_input_d = m});
              }),
              HasSubstr("tcgen05::mma: the condition is int32, not bool"));
  EXPECT_THAT(error_of([](Int32&, Int32&, Pointer&) {
                tcgen05::commit(mbarrier::alloc(1), {.multicast_mask = 1 << 16});
              }),
              HasSubstr("tcgen05::commit: multicast_mask is 65536"));
}

// --- wgmma ---

std::string wgmma_error(int64_t m, int64_t n, int64_t k, DataType a, DataType b, DataType d) {
  return error_of(
      [=](Int32&, Int32&, Pointer&) {
        auto s_a = shared_tensor(a, {m, k});
        auto s_b = shared_tensor(b, {n, k});
        auto acc = wgmma::accumulator(d, {m, n});
        wgmma::mma(s_a, s_b.transpose(), acc, {.scale_d = false});
      },
      "sm_90a");
}

TEST(Wgmma, EveryFunction) {
  const auto body = [](Int32& m, Int32&, Pointer&) {
    auto a = shared_tensor(float16, {128, 64});
    auto b = shared_tensor(float16, {96, 64});
    auto acc = wgmma::accumulator(float32, {128, 96});
    auto left = load_shared(a);
    setmaxnreg(232);
    griddepcontrol::wait();
    wgmma::fence();
    wgmma::mma(a, b.transpose(), acc, {.scale_d = m != 0});
    wgmma::mma(left, b.transpose(), acc, {.scale_d = true, .negate_a = true, .negate_b = true});
    wgmma::commit_group();
    wgmma::wait_group(1);
    griddepcontrol::launch_dependents();
  };
  const std::string text = traced(body, "sm_90a");
  for (const char* op :
       {"uninitialized {dtype = float32, shape = [128, 96]}", "%acc: var<float32, [128, 96]> = var ",
        "setmaxnreg {registers = 232}", "griddepcontrol_wait", "wgmma_fence", "wgmma_mma %a, ",
        "wgmma_mma %left, ", "{negate_a = true, negate_b = true}", "wgmma_commit_group",
        "wgmma_wait_group {pending = 1}", "griddepcontrol_launch_dependents"})
    EXPECT_THAT(text, HasSubstr(op));
}

TEST(WgmmaErrors, ShapesAndTypes) {
  const auto error = [](int64_t m, int64_t n, int64_t k) {
    return wgmma_error(m, n, k, float16, float16, float32);
  };
  EXPECT_EQ(error(64, 320, 48), "");
  EXPECT_THAT(error(96, 64, 64), HasSubstr("wgmma_mma: m is 96, it must be a multiple of 64"));
  EXPECT_THAT(error(64, 100, 64), HasSubstr("wgmma_mma: n is 100, it must be a multiple of 8"));
  EXPECT_THAT(error(64, 64, 40), HasSubstr("wgmma_mma: k is 40, it must be a multiple of 16 for float16"));
  EXPECT_THAT(wgmma_error(64, 40, 64, int8, int8, int32),
              HasSubstr("n is 40, for integers it must be 8, 24 or a multiple of 16"));
  EXPECT_THAT(wgmma_error(64, 64, 64, bfloat16, bfloat16, float16),
              HasSubstr("bfloat16 inputs do not accumulate in float16"));
  EXPECT_THAT(wgmma_error(64, 64, 64, bfloat16, float16, float32),
              HasSubstr("does not multiply bfloat16 and float16"));
  EXPECT_THAT(wgmma_error(64, 64, 64, float64, float64, float64), HasSubstr("does not multiply float64"));
}

TEST(WgmmaErrors, Others) {
  const auto fails = [](const auto& body) { return error_of(body, "sm_90a"); };
  EXPECT_THAT(fails([](Int32&, Int32&, Pointer&) {
                auto a = shared_tensor(float16, {64, 64});
                auto b = shared_tensor(float16, {32, 64});
                auto acc = wgmma::accumulator(float32, {64, 32});
                wgmma::mma(a, b, acc, {.scale_d = false});
              }),
              HasSubstr("wgmma_mma: inner sizes differ, a has k = 64 and b has k = 32"));
  EXPECT_THAT(fails([](Int32&, Int32&, Pointer&) {
                auto a = shared_tensor(float16, {64, 64});
                auto acc = wgmma::accumulator(float32, {64, 32});
                wgmma::mma(a, a.transpose(), acc, {.scale_d = false});
              }),
              HasSubstr("wgmma_mma: d is [64, 32], a x b gives [64, 64]"));
  EXPECT_THAT(fails([](Int32&, Int32&, Pointer&) {
                auto a = shared_tensor(int8, {64, 64});
                auto acc = wgmma::accumulator(int32, {64, 64});
                wgmma::mma(a, a.transpose(), acc, {.scale_d = false, .negate_a = true});
              }),
              HasSubstr("wgmma_mma: integer operands cannot be negated"));
  EXPECT_THAT(fails([](Int32&, Int32&, Pointer&) {
                auto a = shared_tensor(float16, {64, 64});
                auto acc = wgmma::accumulator(float32, {64, 64});
                wgmma::mma(a, a.transpose(), acc, {.scale_d = false, .saturate = true});
              }),
              HasSubstr("wgmma_mma: saturate is for int32 sums"));
  EXPECT_THAT(fails([](Int32&, Int32&, Pointer&) { wgmma::wait_group(8); }),
              HasSubstr("wgmma_wait_group: pending is 8, it is 0 to 7"));
  EXPECT_THAT(fails([](Int32&, Int32&, Pointer&) { setmaxnreg(100); }),
              HasSubstr("setmaxnreg: 100 registers per thread; it takes multiples of 8 from 24 to 256"));
}

}  // namespace
}  // namespace imbrex
