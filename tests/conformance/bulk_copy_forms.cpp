// SPDX-License-Identifier: Apache-2.0
// One-dimensional bulk copies, their reductions, prefetches and groups.
#include <fmt/format.h>

#include "families.h"

namespace imbrex::conformance {
namespace {

constexpr const char* kFamily = "bulk copies";
constexpr int kThreads = 64;

constexpr const char* kInitBarrier =
    "  setp.ne.u32 %p0, %thread, 0;\n"
    "  @!%p0 mbarrier.init.shared::cta.b64 [%bar], 1;\n"
    "  @!%p0 fence.mbarrier_init.release.cluster;\n"
    "  fence.proxy.async;\n"
    "  bar.sync 0;\n";
constexpr const char* kPolicy = "  createpolicy.fractional.L2::evict_last.b64 %rd9, 1.0;\n";

// `insn`: {0} destination, {1} source, {2} barrier.
void add_load(Kernels& out, const std::string& insn, int bytes, int at = 0, int from = 0,
              const std::string& before = "") {
  constexpr int kTile = 4096;
  Frame frame{.threads = kThreads, .tile_bytes = kTile};
  const std::string name =
      fmt::format(fmt::runtime(insn), fmt::format("[s+{}]", at), fmt::format("[g+{}]", from), "[bar]");
  frame.body =
      fill_tile(frame, kTile) + kInitBarrier + kPolicy +
      fmt::format(
          "  add.u32 %r0, %tile, {};\n  add.u64 %rd0, %ginput, {};\n  mov.u32 %r1, {};\n  @%p0 bra issued;\n",
          at, kTile + from, bytes) +
      before + "  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], %r1;\n  " +
      fmt::format(fmt::runtime(insn), "[%r0]", "[%rd0]", "[%bar]") + ";\nissued:\n" +
      wait_parity("%bar", 0, "wait") + dump_tile(frame, kTile);
  Random random(name);
  out.push_back(make_kernel(kFamily, name, frame, random_bytes(2 * kTile + 256, random), kTile));
}

// `insn`: {0} destination, {1} source. The destination, in the output, first gets values of the input.
void add_store(Kernels& out, const std::string& insn, const std::string& values, int at = 0, int from = 0,
               const std::string& wait = "cp.async.bulk.wait_group 0", bool has_nans = false) {
  constexpr int kTile = 2048;
  Frame frame{.threads = kThreads, .tile_bytes = kTile};
  const std::string name =
      fmt::format(fmt::runtime(insn), fmt::format("[g+{}]", at), fmt::format("[s+{}]", from)) + "; " + wait +
      (has_nans ? " of NaNs" : "");
  frame.body = fill_tile(frame, kTile) +
               fmt::format(R"(  mad.wide.u32 %rd20, %thread, 4, %ginput;
  mad.wide.u32 %rd21, %thread, 4, %goutput;
  mov.u32 %r20, 0;
old:
  ld.global.b32 %r21, [%rd20+{0}];
  st.global.b32 [%rd21], %r21;
  add.u64 %rd20, %rd20, 256;
  add.u64 %rd21, %rd21, 256;
  add.u32 %r20, %r20, 256;
  setp.lt.u32 %p1, %r20, {0};
  @%p1 bra old;
)",
                           kTile) +
               kInitBarrier + kPolicy +
               fmt::format("  @%p0 bra done;\n  add.u32 %r0, %tile, {};\n  add.u64 %rd0, %goutput, {};\n  ",
                           from, at) +
               fmt::format(fmt::runtime(insn), "[%rd0]", "[%r0]") + ";\n  cp.async.bulk.commit_group;\n  " +
               wait + ";\n";
  // The output must be there when the kernel is over, however the script waits.
  frame.body += "  cp.async.bulk.wait_group 0;\ndone:\n";
  Random random(name);
  std::vector<uint8_t> input;
  for (int i = 0; static_cast<int>(input.size()) < 2 * kTile; ++i)
    append_values(input, values, has_nans ? Profile::kNans : static_cast<Profile>(random.below(kProfiles)), 1,
                  random);
  out.push_back(make_kernel(kFamily, name, frame, std::move(input), kTile));
}

// From a CTA of a cluster to the next one's shared memory. {0} destination, {1} source, {2} barrier there.
void add_to_peer(Kernels& out, const std::string& insn, int bytes) {
  constexpr int kTile = 1024, kCluster = 3;
  Frame frame{.threads = kThreads, .ctas = kCluster, .cluster = kCluster, .tile_bytes = 2 * kTile};
  const std::string name = fmt::format(fmt::runtime(insn), "[peer]", "[s]", "[peer bar]");
  frame.body = fill_tile(frame, 2 * kTile) + kInitBarrier +
               fmt::format(R"(  barrier.cluster.arrive.release.aligned;
  barrier.cluster.wait.acquire.aligned;
  mov.u32 %r1, {0};
  @%p0 bra issued;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], %r1;
  mov.u32 %r2, %cluster_ctarank;
  add.u32 %r2, %r2, 1;
  rem.u32 %r2, %r2, {1};
  add.u32 %r3, %tile, {2};
  mapa.shared::cluster.u32 %r4, %r3, %r2;
  mapa.shared::cluster.u32 %r5, %bar, %r2;
  )",
                           bytes, kCluster, kTile) +
               fmt::format(fmt::runtime(insn), "[%r4]", "[%tile]", "[%r5]") + ";\nissued:\n" +
               wait_parity("%bar", 0, "wait") +
               "  barrier.cluster.arrive.release.aligned;\n  barrier.cluster.wait.acquire.aligned;\n" +
               dump_tile(frame, 2 * kTile);
  Random random(name);
  out.push_back(
      make_kernel(kFamily, name, frame, random_bytes(2 * kTile * kCluster, random), 2 * kTile * kCluster));
}

void add_multicast(Kernels& out, int cluster, uint32_t mask, bool hinted) {
  constexpr int kTile = 1024;
  Frame frame{.threads = kThreads, .ctas = cluster, .cluster = cluster, .tile_bytes = kTile};
  const std::string insn =
      fmt::format("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster{}",
                  hinted ? ".L2::cache_hint" : "");
  const std::string name = fmt::format("{} cluster {} mask {:#x}", insn, cluster, mask);
  frame.body =
      fill_tile(frame, kTile) + kInitBarrier + kPolicy +
      fmt::format(R"(  barrier.cluster.arrive.release.aligned;
  barrier.cluster.wait.acquire.aligned;
  mov.u32 %r1, %cluster_ctarank;
  mov.u32 %r2, {0};
  shr.u32 %r2, %r2, %r1;
  and.b32 %r2, %r2, 1;
  setp.eq.u32 %p1, %r2, 1;
  @%p0 bra issued;
  @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 512;
  setp.ne.u32 %p2, %r1, 0;
  @%p2 bra issued;
  mov.u16 %h0, {0};
  add.u32 %r3, %tile, 128;
  {1} [%r3], [%ginput], 512, [%bar], %h0{2};
issued:
  bar.sync 0;
  @!%p1 bra waited;
)",
                  mask, insn, hinted ? ", %rd9" : "") +
      wait_parity("%bar", 0, "wait") +
      "waited:\n  barrier.cluster.arrive.release.aligned;\n  barrier.cluster.wait.acquire.aligned;\n" +
      dump_tile(frame, kTile);
  Random random(name);
  out.push_back(make_kernel(kFamily, name, frame, random_bytes(int64_t{kTile} * cluster, random),
                            int64_t{kTile} * cluster));
}

}  // namespace

void add_bulk_copies(Kernels& out) {
  const std::string head = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes";
  for (int bytes : {16, 48, 2048, 4096})
    add_load(out, head + fmt::format(" {{0}}, {{1}}, {}, {{2}}", bytes), bytes);
  add_load(out, head + " {0}, {1}, 80, {2}", 80, 16, 48);
  add_load(out, head + " {0}, {1}, %r1, {2}", 528, 240, 16);
  add_load(out, head + ".L2::cache_hint {0}, {1}, 256, {2}, %rd9", 256, 32, 0);
  add_load(out, "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes {0}, {1}, 96, {2}", 96, 16,
           32);
  add_load(out, head + " {0}, {1}, 64, {2}", 64, 16, 32, "  cp.async.bulk.prefetch.L2.global [%rd0], 64;\n");
  add_load(out, head + " {0}, {1}, 64, {2}", 64, 16, 64,
           "  cp.async.bulk.prefetch.L2.global.L2::cache_hint [%rd0], 64, %rd9;\n");

  const std::string store = "cp.async.bulk.global.shared::cta.bulk_group";
  for (int bytes : {16, 48, 1024, 2048})
    add_store(out, store + fmt::format(" {{0}}, {{1}}, {}", bytes), "b64");
  add_store(out, store + " {0}, {1}, 80", "b64", 48, 16);
  add_store(out, store + ".L2::cache_hint {0}, {1}, 80, %rd9", "b64", 32, 16);
  for (const char* wait : {"cp.async.bulk.wait_group.read 0", "cp.async.bulk.wait_group 1",
                           "cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 1"})
    add_store(out, store + " {0}, {1}, 512", "b64", 16, 16, wait);

  struct Row {
    const char* op;
    std::vector<const char*> types;
  };
  const Row to_global[] = {{"add", {"u32", "s32", "u64", "f32", "f64", "f16", "bf16"}},
                           {"min", {"u32", "s32", "u64", "s64", "f16", "bf16"}},
                           {"max", {"u32", "s32", "u64", "s64", "f16", "bf16"}},
                           {"inc", {"u32"}},
                           {"dec", {"u32"}},
                           {"and", {"b32", "b64"}},
                           {"or", {"b32", "b64"}},
                           {"xor", {"b32", "b64"}}};
  for (const Row& row : to_global)
    for (const std::string type : row.types) {
      const bool is_half = type.ends_with("f16");
      const std::string tail = std::string(row.op) + (is_half && row.op[0] == 'a' ? ".noftz." : ".") + type;
      const std::string values = type[0] == 'f' || type[0] == 'b' ? (type == "b32" ? "b32" : type)
                                 : type.ends_with("64")           ? "b64"
                                                                  : "s32";
      add_store(out, "cp.reduce.async.bulk.global.shared::cta.bulk_group." + tail + " {0}, {1}, 1040", values,
                16, 32);
    }
  for (const std::string type : {"f32", "f64", "f16", "bf16"})
    add_store(out,
              fmt::format("cp.reduce.async.bulk.global.shared::cta.bulk_group.add{}.{} {{0}}, {{1}}, 1040",
                          type.ends_with("f16") ? ".noftz" : "", type),
              type, 16, 32, "cp.async.bulk.wait_group 0", true);
  add_store(out,
            "cp.reduce.async.bulk.global.shared::cta.bulk_group.L2::cache_hint.add.u32 {0}, {1}, 96, %rd9",
            "s32", 16, 32);

  const std::string to_peer = "shared::cluster.shared::cta.mbarrier::complete_tx::bytes";
  for (int bytes : {16, 64, 1024})
    add_to_peer(out, fmt::format("cp.async.bulk.{} {{0}}, {{1}}, {}, {{2}}", to_peer, bytes), bytes);
  const Row to_cluster[] = {{"add", {"u32", "s32", "u64"}},
                            {"min", {"u32", "s32"}},
                            {"max", {"u32", "s32"}},
                            {"inc", {"u32"}},
                            {"dec", {"u32"}},
                            {"and", {"b32"}},
                            {"or", {"b32"}},
                            {"xor", {"b32"}}};
  for (const Row& row : to_cluster)
    for (const char* type : row.types)
      add_to_peer(
          out, fmt::format("cp.reduce.async.bulk.{}.{}.{} {{0}}, {{1}}, 256, {{2}}", to_peer, row.op, type),
          256);

  add_multicast(out, 2, 0x3, false);
  add_multicast(out, 2, 0x2, false);
  add_multicast(out, 4, 0x9, true);
  add_multicast(out, 8, 0xFF, false);
}

}  // namespace imbrex::conformance
