// SPDX-License-Identifier: Apache-2.0
// Each rule of the order of calls, broken and kept; then the same with kernels, whose accesses are recorded.
#include "imbrex/vgpu/stream_order.h"

#include <gtest/gtest.h>

#include "imbrex/core/error.h"
#include "vgpu_testing.h"

namespace imbrex::vgpu {
namespace {

constexpr SourceLocation at(uint32_t line) { return {"host.cpp", line, "main"}; }
constexpr uint64_t kX = 0x1000, kY = 0x2000;
constexpr int64_t kBytes = 1200;

/// Calls by lines of a program that is not there.
struct Program {
  StreamOrder order;
  StreamOrder::Stream a = order.create_stream("a"), b = order.create_stream("b");
  StreamOrder::Event event = order.create_event();
  uint32_t line = 0;
  std::vector<Finding> found;

  void on(StreamOrder::Stream stream, const Footprint& footprint, const char* what = "launch of 'k'") {
    found = order.perform(stream, {what, at(++line)}, footprint);
  }
  void write(StreamOrder::Stream stream) { on(stream, Footprint::of_write(kX, kBytes)); }
  void read(StreamOrder::Stream stream) { on(stream, Footprint::of_read(kX, kBytes)); }
  void free_on_host() {
    found = order.perform_on_host({"free", at(++line)}, Footprint::of_write(kX, kBytes));
  }
  /// The last call races with that of the line, and nothing else.
  ::testing::AssertionResult races_with(int earlier) const {
    if (found.size() == 1 && found[0].kind == FindingKind::kRace &&
        found[0].place.line == static_cast<int>(line) && found[0].other_place.line == earlier)
      return ::testing::AssertionSuccess();
    std::string text;
    for (const Finding& f : found) text += f.format() + "\n";
    return ::testing::AssertionFailure() << found.size() << " findings\n" << text;
  }
  ::testing::AssertionResult is_ordered() const {
    if (found.empty()) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << found[0].format();
  }
};

TEST(StreamOrder, OneStreamIsInOrder) {
  Program p;
  for (int i = 0; i < 3; ++i) {
    p.write(p.a);
    EXPECT_TRUE(p.is_ordered());
    p.read(p.a);
    EXPECT_TRUE(p.is_ordered());
  }
}

TEST(StreamOrder, TwoStreamsNeedAnEvent) {
  Program p;
  p.write(p.a);
  p.read(p.b);
  EXPECT_TRUE(p.races_with(1));
  EXPECT_EQ(p.found[0].message,
            "the launch of 'k' on b reads 1200 bytes, the first at 0x1000, which the launch of 'k' on a "
            "writes, with "
            "nothing that orders the two");
  const std::string text = p.found[0].format();
  EXPECT_NE(text.find("host.cpp:2: race: "), std::string::npos) << text;
  EXPECT_NE(text.find("other host.cpp:1: launch of 'k'"), std::string::npos) << text;

  Program mended;
  mended.write(mended.a);
  mended.order.record(mended.event, mended.a);
  mended.order.wait(mended.b, mended.event);
  mended.read(mended.b);
  EXPECT_TRUE(mended.is_ordered());
  mended.write(mended.a);  // but not the other way round
  EXPECT_TRUE(mended.races_with(2));
}

TEST(StreamOrder, AnEventStandsBehindWhatWasThere) {
  Program p;
  p.order.record(p.event, p.a);
  p.write(p.a);
  p.order.wait(p.b, p.event);
  p.read(p.b);
  EXPECT_TRUE(p.races_with(1));
  p.order.record(p.event, p.a);  // its last record counts
  p.order.wait(p.b, p.event);
  p.write(p.b);
  EXPECT_TRUE(p.is_ordered());
  Program never;
  never.write(never.a);
  never.order.wait(never.b, never.event);  // was not recorded
  never.read(never.b);
  EXPECT_TRUE(never.races_with(1));
}

TEST(StreamOrder, EventsOrderThroughAThirdStream) {
  Program p;
  const StreamOrder::Stream c = p.order.create_stream("c");
  const StreamOrder::Event second = p.order.create_event();
  p.write(p.a);
  p.order.record(p.event, p.a);
  p.order.wait(c, p.event);
  p.order.record(second, c);
  p.order.wait(p.b, second);
  p.write(p.b);
  EXPECT_TRUE(p.is_ordered());
}

TEST(StreamOrder, TheHostWaitsForAStreamAnEventOrAll) {
  const auto after = [](auto&& wait) {
    Program p;
    p.write(p.a);
    p.order.record(p.event, p.a);
    wait(p);
    p.read(p.b);
    return p.is_ordered();
  };
  EXPECT_FALSE(after([](Program&) {}));
  EXPECT_FALSE(after([](Program& p) { p.order.synchronize(p.b); }));
  EXPECT_TRUE(after([](Program& p) { p.order.synchronize(p.a); }));
  EXPECT_TRUE(after([](Program& p) { p.order.synchronize_event(p.event); }));
  EXPECT_TRUE(after([](Program& p) { p.order.synchronize(); }));
}

TEST(StreamOrder, AWaitOfTheHostDoesNotReachBack) {
  Program p;
  p.read(p.b);
  p.write(p.a);
  EXPECT_TRUE(p.races_with(1));
  p.order.synchronize(p.a);
  p.order.synchronize(p.b);
  EXPECT_EQ(p.order.remembered(), 0u);
}

TEST(StreamOrder, ACopyByTheHostBeforeItWaited) {
  Program p;
  p.write(p.a);
  p.on(p.b, Footprint::of_copy(0x7000'0000'0000, kX, kBytes), "copy to the host");
  EXPECT_TRUE(p.races_with(1));
  p.on(p.a, Footprint::of_copy(kY, 0x7000'0000'0000, 4),
       "copy from the host");  // of bytes still being written
  EXPECT_TRUE(p.races_with(2));
}

TEST(StreamOrder, AFreeThatDoesNotWait) {
  Program p;
  p.read(p.a);
  p.free_on_host();
  EXPECT_TRUE(p.races_with(1));
  EXPECT_NE(p.found[0].message.find("the free by the host writes"), std::string::npos) << p.found[0].message;
  Program mended;
  mended.read(mended.a);
  mended.order.synchronize(mended.a);
  mended.free_on_host();
  EXPECT_TRUE(mended.is_ordered());
  Program on_stream;  // a free on another stream than the last use
  on_stream.write(on_stream.a);
  on_stream.on(on_stream.b, Footprint::of_write(kX, kBytes), "free");
  EXPECT_TRUE(on_stream.races_with(1));
}

TEST(StreamOrder, TheLegacyStreamWaitsForBlockingStreamsAndTheyForIt) {
  Program p;
  const StreamOrder::Stream blocking = p.order.create_stream("blocking", true),
                            other = p.order.create_stream("other", true);
  p.write(blocking);
  p.write(StreamOrder::kLegacyStream);
  EXPECT_TRUE(p.is_ordered());
  p.write(other);
  EXPECT_TRUE(p.is_ordered());
  p.read(p.a);  // does not block
  EXPECT_TRUE(p.races_with(3));
  p.order.synchronize();
  p.write(p.a);
  p.write(StreamOrder::kLegacyStream);
  EXPECT_TRUE(p.races_with(5));
  p.order.synchronize();
  p.write(blocking);
  p.write(other);  // blocking streams are not ordered among themselves
  EXPECT_TRUE(p.races_with(7));
  p.order.synchronize();
  p.write(blocking);
  p.order.synchronize(StreamOrder::kLegacyStream);
  p.write(other);
  EXPECT_TRUE(p.is_ordered());
}

TEST(StreamOrder, ReadsAndAtomicsMayMeet) {
  const auto both = [](std::vector<ByteRange> Footprint::*first, std::vector<ByteRange> Footprint::*second) {
    Program p;
    Footprint footprint;
    (footprint.*first).push_back({kX, kX + 4});
    p.on(p.a, footprint);
    footprint = {};
    (footprint.*second).push_back({kX, kX + 4});
    p.on(p.b, footprint);
    return p.found.empty();
  };
  const auto read = &Footprint::read, written = &Footprint::written, strong = &Footprint::read_strongly,
             atomic = &Footprint::written_strongly;
  for (const auto any : {read, written, strong, atomic}) {
    EXPECT_FALSE(both(any, written));
    EXPECT_FALSE(both(written, any));
    EXPECT_TRUE(any == written || both(any, strong));
  }
  EXPECT_TRUE(both(read, read));
  EXPECT_TRUE(both(atomic, atomic));
  EXPECT_FALSE(both(read, atomic));
  EXPECT_FALSE(both(atomic, read));
}

TEST(StreamOrder, BytesAreToldApart) {
  Program p;
  p.on(p.a, {.written = {{100, 114}, {128, 142}}});
  p.on(p.b, {.written = {{114, 128}, {142, 156}}});
  EXPECT_TRUE(p.is_ordered());
  p.on(p.b, {.read = {{113, 115}}});
  EXPECT_TRUE(p.races_with(1));
  EXPECT_EQ(p.found[0].address, 113u);
  EXPECT_NE(p.found[0].message.find(" 1 bytes"), std::string::npos) << p.found[0].message;
  p.order.forget({0, 1000});
  EXPECT_EQ(p.order.remembered(), 0u);
}

TEST(StreamOrder, MemoryOfManyCallsStaysSmall) {
  Program p;
  for (int i = 0; i < 1000; ++i) {
    p.write(p.a);
    p.read(p.a);
    p.on(p.a, {.written = {{kX + 16, kX + 32}, {kX + 64, kX + 96}}});
    ASSERT_TRUE(p.is_ordered());
  }
  EXPECT_LE(p.order.remembered(), 8u);
  for (int i = 0; i < 1000; ++i) {
    const StreamOrder::Stream stream = p.order.create_stream();
    p.order.synchronize();
    p.read(stream);
    p.order.destroy_stream(stream);
  }
  p.order.synchronize();
  EXPECT_LT(p.order.create_stream(), 10u);  // numbers of destroyed streams are used again
}

/// Against an order computed by brute force: a graph of all operations, in which every path orders.
TEST(StreamOrder, RandomProgramsAgreeWithReachability) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    uint64_t state = seed * 0x9E3779B97F4A7C15u;
    const auto below = [&](uint64_t n) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      return (state >> 33) % n;
    };
    struct Op {
      std::vector<bool> before;  // by operation
      uint64_t byte;
      bool writes;
    };
    constexpr size_t kStreams = 5, kEvents = 3;  // the legacy one, two that block, two that do not
    std::vector<Op> ops;
    using Set = std::vector<bool>;
    Set host;
    std::vector<Set> streams(kStreams), events(kEvents);
    std::vector<bool> is_recorded(kEvents);
    const auto join = [](Set& to, const Set& from) {
      to.resize(std::max(to.size(), from.size()));
      for (size_t i = 0; i < from.size(); ++i) to[i] = to[i] || from[i];
    };
    const auto current = [&](size_t s) -> Set& {
      join(streams[s], host);
      if (s == 0)
        for (size_t other : {1u, 2u}) join(streams[0], streams[other]);
      else if (s < 3)
        join(streams[s], streams[0]);
      return streams[s];
    };
    StreamOrder order;
    std::vector<StreamOrder::Stream> ids{StreamOrder::kLegacyStream};
    for (size_t s = 1; s < kStreams; ++s) ids.push_back(order.create_stream("", s < 3));
    std::vector<StreamOrder::Event> event_ids;
    for (size_t e = 0; e < kEvents; ++e) event_ids.push_back(order.create_event());
    for (int step = 0; step < 40; ++step) {
      const size_t s = below(kStreams), e = below(kEvents);
      switch (below(8)) {
        case 0:
          events[e] = current(s);
          is_recorded[e] = true;
          order.record(event_ids[e], ids[s]);
          break;
        case 1:
          if (is_recorded[e]) join(current(s), events[e]);
          order.wait(ids[s], event_ids[e]);
          break;
        case 2:
          if (below(3) != 0) break;
          join(host, current(s));
          order.synchronize(ids[s]);
          break;
        case 3:
          if (below(3) != 0) break;
          join(host, events[e]);
          order.synchronize_event(event_ids[e]);
          break;
        default: {
          const uint64_t byte = below(3);
          const bool writes = below(2) == 0;
          Set& known = current(s);
          known.resize(ops.size() + 1);
          std::vector<int> expected;
          for (size_t i = 0; i < ops.size(); ++i)
            if (ops[i].byte == byte && (ops[i].writes || writes) && !known[i])
              expected.push_back(static_cast<int>(i));
          const auto found =
              order.perform(ids[s], {"step", at(static_cast<uint32_t>(ops.size() + 1))},
                            writes ? Footprint::of_write(byte, 1) : Footprint::of_read(byte, 1));
          // Of several races it may tell the last only; never one that is none, nor nothing where there is one that
          // was not told before.
          for (const Finding& f : found)
            ASSERT_TRUE(std::ranges::count(expected, f.other_place.line - 1)) << "seed " << seed << "\n"
                                                                              << f.format();
          ASSERT_EQ(expected.empty(), found.empty()) << "seed " << seed << ", step " << step;
          known[ops.size()] = true;
          ops.push_back({known, byte, writes});
          if (!found.empty()) {  // from a clean slate, as what was told is not told again
            join(host, known);
            for (Set& stream : streams) join(host, stream);
            order.synchronize();
          }
          break;
        }
      }
    }
  }
}

// ---- with kernels

constexpr const char* kCopyWords = R"(.version 9.0
.target sm_90a
.address_size 64
.visible .entry copy_words(.param .u64 to, .param .u64 from)
{
  .reg .b32 %t, %c, %i, %x;
  .reg .b64 %to, %from;
  ld.param.u64 %to, [to];
  ld.param.u64 %from, [from];
  mov.u32 %t, %tid.x;
  mov.u32 %c, %ctaid.x;
  mad.lo.u32 %i, %c, 64, %t;
  mad.wide.u32 %to, %i, 4, %to;
  mad.wide.u32 %from, %i, 4, %from;
  ld.global.u32 %x, [%from];
  st.global.u32 [%to], %x;
  ret;
}
.visible .entry count(.param .u64 counter)
{
  .reg .b32 %x;
  .reg .b64 %at;
  ld.param.u64 %at, [counter];
  atom.global.add.u32 %x, [%at], 1;
  ret;
}
)";

struct Machine {
  VirtualGpu gpu;
  Module module;
  StreamOrder::Stream a, b;
  DeviceAddress x, y, z;
  explicit Machine(Options options = {.target = "sm_90a"})
      : gpu(std::move(options)),
        module(gpu.load_module(kCopyWords, "copy.ptx")),
        a(gpu.order().create_stream("a")),
        b(gpu.order().create_stream("b")),
        x(gpu.allocate(512)),
        y(gpu.allocate(512)),
        z(gpu.allocate(512)) {
    gpu.fill(x, 7, 512);
  }
  Report copy(std::optional<StreamOrder::Stream> stream, DeviceAddress to, DeviceAddress from,
              uint32_t line) {
    void* arguments[] = {&to, &from};
    return gpu.launch(
        module.function("copy_words"),
        {.grid = {2}, .block = {64}, .arguments = arguments, .stream = stream, .where = at(line)});
  }
  Report count(StreamOrder::Stream stream, DeviceAddress counter) {
    void* arguments[] = {&counter};
    return gpu.launch(module.function("count"),
                      {.grid = {2}, .block = {64}, .arguments = arguments, .stream = stream, .where = at(1)});
  }
};

TEST(StreamOrderOfLaunches, ByWhatKernelsTouch) {
  Machine m;
  EXPECT_TRUE(m.copy(m.a, m.y, m.x, 1).clean());
  EXPECT_TRUE(m.copy(m.b, m.z, m.x, 2).clean());  // both read x
  const Report report = m.copy(m.b, m.z, m.y, 3);
  ASSERT_EQ(report.findings.size(), 1u) << report.format();
  EXPECT_TRUE(report.completed);
  const std::string text = report.format();
  for (const char* part :
       {"host.cpp:3: race: the launch of 'copy_words' on b reads 512 bytes", "copy_words' on a writes",
        "other host.cpp:1: launch of 'copy_words'", "allocation 1 [0x", "record an event"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\nin: " << text;
  EXPECT_THROW(report.expect_clean(), DeviceError);
  m.gpu.order().synchronize();
  EXPECT_TRUE(m.copy(m.b, m.z, m.y, 4).clean());
}

TEST(StreamOrderOfLaunches, OverlapInPartOfATensor) {
  Machine m;
  EXPECT_TRUE(m.copy(m.a, m.y, m.x, 1).clean());
  const Report report =
      m.copy(m.b, m.y - 256 - 252, m.x, 2);  // its last word is not y's first: a guard is hit
  EXPECT_EQ(report.findings.empty() ? FindingKind::kRace : report.findings[0].kind,
            FindingKind::kOutOfBounds);
  const std::vector<Finding> found = m.gpu.judge(m.b, {"fill", at(3)}, Footprint::of_write(m.y + 508, 4));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].address, m.y + 508);
}

TEST(StreamOrderOfLaunches, AtomicsOfTwoKernelsMayMeet) {
  Machine m;
  m.gpu.fill(m.z, 0, 512);
  EXPECT_TRUE(m.count(m.a, m.z).clean());
  EXPECT_TRUE(m.count(m.b, m.z).clean());
  EXPECT_FALSE(m.copy(m.b, m.y, m.z, 2).clean());
}

TEST(StreamOrderOfLaunches, WithoutAStreamOrTheCheckNothingIsJudged) {
  Machine m;
  EXPECT_TRUE(m.copy({}, m.y, m.x, 1).clean());
  EXPECT_TRUE(m.copy(m.b, m.z, m.y, 2).clean());
  Options options{.target = "sm_90a"};
  options.checks.stream_order = false;
  Machine off(options);
  EXPECT_TRUE(off.copy(off.a, off.y, off.x, 1).clean());
  EXPECT_TRUE(off.copy(off.b, off.z, off.y, 2).clean());
}

TEST(StreamOrderOfLaunches, UseAfterFreeNamesTheFree) {
  Machine m;
  m.gpu.free(m.x, at(5));
  const Report report = m.copy(m.a, m.y, m.x, 6);
  ASSERT_FALSE(report.findings.empty());
  EXPECT_EQ(report.findings[0].kind, FindingKind::kUseAfterFree);
  EXPECT_NE(report.format().find("freed at host.cpp:5"), std::string::npos) << report.format();
}

}  // namespace
}  // namespace imbrex::vgpu
