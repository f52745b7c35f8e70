// SPDX-License-Identifier: Apache-2.0
// cp.async: sizes, zero fill, groups, and its arrivals on barriers.
#include <fmt/format.h>

#include "families.h"

namespace imbrex::conformance {
namespace {

constexpr const char* kFamily = "cp.async";
constexpr int kThreads = 64, kSlot = 16;
constexpr int kTile = kThreads * kSlot;

// Each thread copies into its 16 bytes of a filled tile, which is dumped. `copy` has {0} and {1} for the
// addresses; %r10 (0 ... 16, from the input) and %p1 may be used by it; `wait` completes the copies.
void add(Kernels& out, const std::string& copy, const std::string& wait = "cp.async.wait_all",
         const std::string& wait_name = "") {
  Frame frame{.threads = kThreads, .tile_bytes = kTile, .in_stride = 0};
  const std::string name =
      fmt::format(fmt::runtime(copy), "[s]", "[g]") + "; " + (wait_name.empty() ? wait : wait_name);
  frame.body = fill_tile(frame, kTile) +
               fmt::format(R"(  setp.ne.u32 %p0, %thread, 0;
  @!%p0 mbarrier.init.shared::cta.b64 [%bar], {0};
  bar.sync 0;
  mad.lo.u32 %r0, %thread, {1}, %tile;
  mad.wide.u32 %rd0, %thread, {1}, %ginput;
  add.u64 %rd0, %rd0, {2};
  rem.u32 %r10, %thread, 17;
  and.b32 %r11, %thread, 4;
  setp.ne.u32 %p1, %r11, 0;
  createpolicy.fractional.L2::evict_first.b64 %rd1, 0.5;
)",
                           kThreads, kSlot, kTile) +
               "  " + fmt::format(fmt::runtime(copy), "[%r0]", "[%rd0]") + ";\n  " + wait +
               ";\n  bar.sync 0;\n" + dump_tile(frame, kTile);
  Random random(name);
  out.push_back(make_kernel(kFamily, name, frame, random_bytes(2 * kTile + 64, random), kTile));
}

}  // namespace

void add_cp_async(Kernels& out) {
  for (const char* space : {".shared.global", ".shared::cta.global"}) {
    for (int bytes : {4, 8, 16}) {
      add(out, fmt::format("cp.async.ca{} {{0}}, {{1}}, {}", space, bytes));
      for (int source = 0; source <= bytes; source += bytes == 16 ? 3 : 1)
        add(out, fmt::format("cp.async.ca{} {{0}}, {{1}}, {}, {}", space, bytes, source));
      add(out, fmt::format("min.u32 %r10, %r10, {1}; cp.async.ca{0} {{0}}, {{1}}, {1}, %r10", space, bytes));
      add(out, fmt::format("cp.async.ca{} {{0}}, {{1}}, {}, %p1", space, bytes));
    }
    add(out, fmt::format("cp.async.cg{} {{0}}, {{1}}, 16", space));
    add(out, fmt::format("cp.async.cg{} {{0}}, {{1}}, 16, 7", space));
    add(out, fmt::format("min.u32 %r10, %r10, 16; cp.async.cg{} {{0}}, {{1}}, 16, %r10", space));
    add(out, fmt::format("cp.async.cg{} {{0}}, {{1}}, 16, %p1", space));
  }
  for (const char* prefetch : {"64B", "128B", "256B"}) {
    add(out, fmt::format("cp.async.ca.shared.global.L2::{} {{0}}, {{1}}, 8", prefetch));
    add(out, fmt::format("cp.async.cg.shared.global.L2::{} {{0}}, {{1}}, 16, 5", prefetch));
  }
  add(out, "cp.async.ca.shared.global.L2::cache_hint {0}, {1}, 4, %rd1");
  add(out, "cp.async.cg.shared.global.L2::cache_hint {0}, {1}, 16, %rd1");
  add(out, "cp.async.cg.shared.global.L2::cache_hint {0}, {1}, 16, 9, %rd1");
  const std::string copy = "cp.async.ca.shared.global {0}, {1}, 16";
  add(out, copy, "cp.async.commit_group; cp.async.wait_group 0");
  add(out, copy + "; cp.async.commit_group; cp.async.commit_group", "cp.async.wait_group 1");
  add(out, copy + "; cp.async.commit_group; cp.async.commit_group; cp.async.commit_group",
      "cp.async.wait_group 2");
  const std::string wait = wait_parity("%bar", 0, "wait");
  for (const char* space : {".shared", ".shared::cta"}) {
    // Without .noinc the arrival was added to the count before, so every thread must arrive as well.
    const std::string with_count = fmt::format("cp.async.mbarrier.arrive{}.b64 [%bar]", space);
    const std::string without = fmt::format("cp.async.mbarrier.arrive.noinc{}.b64 [%bar]", space);
    const std::string arrive = ";\n  mbarrier.arrive.shared::cta.b64 _, [%bar]";
    add(out, copy, without + ";\n" + wait + "  mov.u32 %r20, 0", without);
    add(out, copy, with_count + arrive + ";\n" + wait + "  mov.u32 %r20, 0", with_count);
  }
}

}  // namespace imbrex::conformance
