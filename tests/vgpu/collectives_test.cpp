// SPDX-License-Identifier: Apache-2.0
// shfl, vote, match, redux, elect, activemask, and atomics, against loops over the lanes.
#include <bit>
#include <cmath>
#include <set>

#include "snippet.h"

namespace imbrex::vgpu {
namespace {

/// One warp: %a is the lane's value, %lane its number.
std::vector<uint64_t> warp(const std::string& code, const std::string& result,
                           const std::function<uint64_t(int)>& value) {
  std::vector<Row> rows(32);
  for (size_t i = 0; i < 32; ++i) rows[i].a = value(static_cast<int>(i));
  return run_snippet("{ " + code + " }", result, rows);
}

void expect_lanes(const std::vector<uint64_t>& got, const std::function<uint64_t(int)>& want) {
  for (int i = 0; i < 32; ++i) EXPECT_EQ(got[static_cast<size_t>(i)], want(i)) << "lane " << i;
}

TEST(Shuffle, EveryMode) {
  const auto value = [](int i) { return static_cast<uint64_t>(i * 3 + 1); };
  expect_lanes(warp("shfl.sync.bfly.b32 %d, %a, 5, 31, -1;", "%d", value),
               [&](int i) { return value(i ^ 5); });
  expect_lanes(warp("shfl.sync.up.b32 %d, %a, 3, 0, -1;", "%d", value),
               [&](int i) { return value(i < 3 ? i : i - 3); });
  expect_lanes(warp("shfl.sync.down.b32 %d, %a, 30, 31, -1;", "%d", value),
               [&](int i) { return value(i + 30 > 31 ? i : i + 30); });
  expect_lanes(warp("shfl.sync.idx.b32 %d, %a, 9, 31, -1;", "%d", value), [&](int) { return value(9); });
  expect_lanes(warp("shfl.sync.down.b32 %d|%p, %a, 30, 31, -1;", "%p", value),
               [&](int i) { return uint64_t{i + 30 <= 31}; });
}

TEST(Shuffle, SegmentsOfEight) {
  // c = clamp | (32 - width) << 8, as __shfl_*_sync(mask, x, d, 8) makes it.
  const auto value = [](int i) { return static_cast<uint64_t>(i + 100); };
  expect_lanes(warp("shfl.sync.idx.b32 %d, %a, 2, 0x181f, -1;", "%d", value),
               [&](int i) { return value(i / 8 * 8 + 2); });
  expect_lanes(warp("shfl.sync.up.b32 %d, %a, 3, 0x1800, -1;", "%d", value),
               [&](int i) { return value(i % 8 < 3 ? i : i - 3); });
  expect_lanes(warp("shfl.sync.down.b32 %d, %a, 3, 0x181f, -1;", "%d", value),
               [&](int i) { return value(i % 8 + 3 > 7 ? i : i + 3); });
}

TEST(Shuffle, OneDistanceInEveryModeAndWidth) {
  // One after the other, so that none is taken for the one before; and with a distance that differs from lane to lane.
  const auto value = [](int i) { return static_cast<uint64_t>(i * 7 + 5); };
  for (const std::string distance : {"6", "%lane"})
    for (const int width : {32, 16, 4})
      for (const std::string mode : {"up", "down", "bfly", "idx", "up"}) {
        const int segment = 32 - width, clamp = mode == "up" ? 0 : 31;
        const auto source = [&](int i) {
          const int d = distance == "6" ? 6 : i, first = i & segment;
          if (mode == "up") return i - d >= first ? i - d : -1;
          const int from = mode == "down" ? i + d : mode == "bfly" ? i ^ d : first | (d & ~segment);
          return from < first + width ? from : -1;
        };
        const std::string code =
            fmt::format("shfl.sync.{}.b32 %d|%p, %a, {}, {}, -1;", mode, distance, segment << 8 | clamp);
        SCOPED_TRACE(code);
        expect_lanes(warp(code, "%d", value), [&](int i) { return value(source(i) < 0 ? i : source(i)); });
        expect_lanes(warp(code, "%p", value), [&](int i) { return uint64_t{source(i) >= 0}; });
      }
}

TEST(Shuffle, ReadingALaneThatDoesNotTakePartIsFound) {
  VirtualGpu gpu({.target = "sm_90a"});
  const Function k = gpu.load_module(R"(.version 8.6
.target sm_90a
.address_size 64
.visible .entry k()
{
  .reg .pred %p;
  .reg .b32 %x, %y;
  mov.u32 %x, %laneid;
  setp.lt.u32 %p, %x, 16;
  @%p shfl.sync.idx.b32 %y, %x, 20, 31, 0xffff;
  ret;
})")
                         .function("k");
  const Report report = gpu.launch(k, {.block = {32}});
  ASSERT_EQ(report.findings.size(), 1u) << report.format();
  EXPECT_EQ(report.findings[0].kind, FindingKind::kDivergentCollective);
}

TEST(Vote, EveryMode) {
  const auto odd = [](int i) { return static_cast<uint64_t>(i % 2); };
  const std::string test = ".reg .pred %s; setp.ne.u32 %s, %a, 0; ";
  expect_lanes(warp(test + "vote.sync.ballot.b32 %d, %s, -1;", "%d", odd), [](int) { return 0xAAAAAAAAu; });
  expect_lanes(warp(test + "vote.sync.ballot.b32 %d, !%s, -1;", "%d", odd), [](int) { return 0x55555555u; });
  expect_lanes(warp(test + "vote.sync.any.pred %p, %s, -1;", "%p", odd), [](int) { return 1u; });
  expect_lanes(warp(test + "vote.sync.all.pred %p, %s, -1;", "%p", odd), [](int) { return 0u; });
  expect_lanes(warp(test + "vote.sync.uni.pred %p, %s, -1;", "%p", odd), [](int) { return 0u; });
  expect_lanes(warp(test + "vote.sync.uni.pred %p, %s, -1;", "%p", [](int) { return 0; }),
               [](int) { return 1u; });
}

TEST(Match, AnyAndAll) {
  const auto value = [](int i) { return static_cast<uint64_t>(i % 3); };
  expect_lanes(warp("match.any.sync.b32 %d, %a, -1;", "%d", value), [&](int i) {
    uint64_t mask = 0;
    for (int j = 0; j < 32; ++j) mask |= uint64_t{j % 3 == i % 3} << j;
    return mask;
  });
  expect_lanes(warp("match.all.sync.b32 %d|%p, %a, -1;", "%d", value), [](int) { return 0u; });
  expect_lanes(warp("match.all.sync.b64 %d|%p, %A, -1;", "%p", [](int) { return 7; }),
               [](int) { return 1u; });
}

TEST(Redux, EveryOperation) {
  const auto value = [](int i) { return (0x9E3779B9u * static_cast<uint32_t>(i + 1)) & 0xFFFFFFFFu; };
  const auto fold = [&](auto f) {
    uint32_t r = value(0);
    for (int i = 1; i < 32; ++i) r = f(r, value(i));
    return r;
  };
  const auto check = [&](const std::string& op, uint32_t want) {
    expect_lanes(warp("redux.sync." + op + " %d, %a, -1;", "%d", value), [&](int) { return want; });
  };
  using S = int32_t;
  check("add.u32", fold([](uint32_t a, uint32_t b) { return a + b; }));
  check("min.u32", fold([](uint32_t a, uint32_t b) { return std::min(a, b); }));
  check("max.s32", fold([](uint32_t a, uint32_t b) { return static_cast<uint32_t>(std::max(S(a), S(b))); }));
  check("and.b32", fold([](uint32_t a, uint32_t b) { return a & b; }));
  check("xor.b32", fold([](uint32_t a, uint32_t b) { return a ^ b; }));
}

TEST(Redux, FloatsIgnoreNanUnlessAsked) {
  const auto value = [](int i) {
    return i == 4 ? 0x7FC00001u : std::bit_cast<uint32_t>(static_cast<float>(i) - 9.5f);
  };
  const auto bits = [](float x) { return uint64_t{std::bit_cast<uint32_t>(x)}; };
  expect_lanes(warp("redux.sync.min.f32 %d, %a, -1;", "%d", value), [&](int) { return bits(-9.5f); });
  expect_lanes(warp("redux.sync.max.abs.f32 %d, %a, -1;", "%d", value), [&](int) { return bits(21.5f); });
  expect_lanes(warp("redux.sync.max.NaN.f32 %d, %a, -1;", "%d", value), [&](int) { return 0x7FFFFFFFu; });
}

TEST(Elect, TheLowestLaneOfTheMask) {
  expect_lanes(warp("elect.sync %d|%p, -1;", "%p", [](int) { return 0; }),
               [](int i) { return uint64_t{i == 0}; });
  expect_lanes(warp(".reg .pred %s; setp.ge.u32 %s, %lane, 6; mov.u32 %d, 99;\n"
                    "@%s elect.sync %d|%p, 0xffffffc0;",
                    "%d", [](int) { return 0; }),
               [](int i) { return i < 6 ? 99u : 6u; });
}

TEST(Elect, UnderASeedSomeLaneAlwaysTheSame) {
  constexpr const char* kText = R"(.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out)
{
  .reg .pred %p;
  .reg .b32 %a, %b;
  .reg .b64 %out;
  ld.param.u64 %out, [out];
  elect.sync %a|%p, 0x00ff0f00;
  elect.sync %b|%p, 0x00ff0f00;
  @%p st.global.v2.u32 [%out], {%a, %b};
  ret;
}
)";
  std::set<uint32_t> chosen;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    VirtualGpu gpu({.target = "sm_90a", .seed = seed});
    DeviceAddress out = gpu.allocate(8);
    void* arguments[] = {&out};
    std::string text = kText;
    // The lanes that are not named do not take part.
    text.insert(text.find("  elect.sync"),
                "  .reg .pred %in;\n  .reg .b32 %lane;\n  mov.u32 %lane, %laneid;\n"
                "  shr.u32 %a, 0x00ff0f00, %lane;\n  and.b32 %a, %a, 1;\n"
                "  setp.eq.u32 %in, %a, 0;\n  @%in ret;\n");
    const Report report =
        gpu.launch(gpu.load_module(text, "elect.ptx").function("k"), {.block = {32}, .arguments = arguments});
    EXPECT_TRUE(report.clean()) << report.format();
    const std::vector<uint32_t> lanes = from_device<uint32_t>(gpu, out, 2);
    EXPECT_EQ(lanes[0], lanes[1]);
    EXPECT_NE(0x00ff0f00u >> lanes[0] & 1, 0u) << lanes[0];
    EXPECT_TRUE(seed != 0 || lanes[0] == 8) << lanes[0];
    chosen.insert(lanes[0]);
  }
  EXPECT_GT(chosen.size(), 4u);
}

// ---- atomics: all lanes of a warp on one word, in lane order
// --------------------------------------------------------

struct Case {
  const char* op;
  const char* type;
  uint64_t start;
  uint64_t (*update)(uint64_t old, uint64_t value);
};

TEST(Atomics, OldValuesAndFinalValue) {
  using U = uint64_t;
  using F = float;
  const Case kCases[] = {
      {"add", "u32", 0xFFFFFFF0, [](U o, U v) { return (o + v) & 0xFFFFFFFF; }},
      {"min", "s32", 5, [](U o, U v) { return static_cast<int32_t>(v) < static_cast<int32_t>(o) ? v : o; }},
      {"max", "u32", 5, [](U o, U v) { return std::max(o, v); }},
      {"and", "b32", 0xFF0F, [](U o, U v) { return o & v; }},
      {"or", "b32", 0x8000, [](U o, U v) { return o | v; }},
      {"xor", "b32", 0x1234, [](U o, U v) { return o ^ v; }},
      {"exch", "b32", 77, [](U, U v) { return v; }},
      {"inc", "u32", 3, [](U o, U v) { return o >= v ? 0 : o + 1; }},
      {"dec", "u32", 3, [](U o, U v) { return o == 0 || o > v ? v : o - 1; }},
      {"add", "f32", 0x3F800000,
       [](U o, U v) {
         const float sum =
             std::bit_cast<F>(static_cast<uint32_t>(o)) + std::bit_cast<F>(static_cast<uint32_t>(v));
         return U{
             std::bit_cast<uint32_t>(std::fpclassify(sum) == FP_SUBNORMAL ? std::copysign(0.0f, sum) : sum)};
       }},
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(std::string(c.op) + "." + c.type);
    const auto value = [&](int i) {
      return std::string(c.type) == "f32" ? U{std::bit_cast<uint32_t>(static_cast<float>(i) * 0.37f)}
                                          : U{static_cast<uint32_t>(i * 2654435761u) >> 20};
    };
    std::vector<U> want;
    U now = c.start;
    for (int i = 0; i < 32; ++i) {
      want.push_back(now);
      now = c.update(now, value(i));
    }
    std::vector<Row> rows(32);
    for (size_t i = 0; i < 32; ++i) rows[i].a = value(static_cast<int>(i));
    for (const std::string space : {"shared", "global"}) {
      SCOPED_TRACE(space);
      // In global memory the word is where the 32nd row's third operand was.
      const std::string prepare = space == "shared" ? ".shared .align 8 .b64 word; mov.u64 %C, word; "
                                                    : "ld.param.u64 %C, [in]; add.u64 %C, %C, 760; ";
      // (All lanes have read their rows before lane 0 overwrites that word.)
      const std::string code = "{ " + prepare +
                               ".reg .pred %s; bar.warp.sync -1; setp.eq.u32 %s, %lane, 0; @%s st." + space +
                               ".u32 [%C], " + std::to_string(c.start) + "; bar.warp.sync -1; atom." + space +
                               "." + c.op + "." + c.type + " %d, [%C], %a; }";
      expect_lanes(run_snippet(code, "%d", rows), [&](int i) { return want[static_cast<size_t>(i)]; });
    }
  }
}

TEST(Atomics, CompareAndSwapOfEveryWidth) {
  std::vector<Row> rows(32);
  for (size_t i = 0; i < 32; ++i) rows[i] = {i, i + 1, 0};
  // The word counts 0, 1, 2, ...: each lane finds its own number and puts the next one.
  const std::string start =
      ".shared .align 8 .b64 word; .reg .pred %s; setp.eq.u32 %s, %lane, 0; "
      "@%s st.shared.u64 [word], 0; bar.warp.sync -1; ";
  expect_lanes(run_snippet("{ " + start + "atom.shared.cas.b32 %d, [word], %a, %b; }", "%d", rows),
               [](int i) { return static_cast<uint64_t>(i); });
  expect_lanes(run_snippet("{ " + start + "atom.shared.cas.b64 %D, [word], %A, %B; }", "%D", rows),
               [](int i) { return static_cast<uint64_t>(i); });
  expect_lanes(run_snippet("{ " + start + "atom.shared.cas.b16 %hd, [word], %ha, %hb; }", "%hd", rows),
               [](int i) { return static_cast<uint64_t>(i); });
}

TEST(Atomics, PackedHalvesAddEachHalf) {
  std::vector<Row> rows(32);
  for (size_t i = 0; i < 32; ++i) rows[i].a = 0x3C004000;  // {2, 1}
  const std::vector<uint64_t> got = run_snippet(
      "{ .shared .align 4 .b32 word; .reg .pred %s; setp.eq.u32 %s, %lane, 0; "
      "@%s st.shared.u32 [word], 0; bar.warp.sync -1; atom.shared.add.noftz.f16x2 %d, [word], %a; }",
      "%d", rows);
  EXPECT_EQ(got[0], 0u);
  EXPECT_EQ(got[1], 0x3C004000u);
  EXPECT_EQ(got[2], 0x40004400u);
}

}  // namespace
}  // namespace imbrex::vgpu
