// SPDX-License-Identifier: Apache-2.0
// Tensor copies that go to several CTAs, and tensor maps changed by the kernel.
#include <algorithm>

#include "families.h"
#include "tensor_box.h"

namespace imbrex::conformance {
namespace {

// Every CTA of a cluster gets the box that CTA `from` loads, where the mask says so.
void add_multicast(Kernels& out, int cluster, uint32_t mask, bool hinted, const char* mode = "") {
  const Box b{.dims = {64, 20}, .box = {32, 8}, .at = {8, 5}, .swizzle = 2};
  BoxSizes sizes;
  MapSpec map = map_of(b, sizes);
  Frame frame{.threads = 64, .ctas = cluster, .cluster = cluster, .tile_bytes = sizes.footprint, .maps = 1};
  const std::string name = fmt::format(
      "cp.async.bulk.tensor.2d.shared::cluster.global{}.mbarrier::complete_tx::bytes.multicast::cluster{} "
      "cluster {} mask {:#x}",
      mode, hinted ? ".L2::cache_hint" : "", cluster, mask);
  map.offset = int64_t{sizes.footprint} * cluster;
  frame.body =
      fill_tile(frame, sizes.footprint) + kInitCopyBarrier +
      fmt::format(R"(  barrier.cluster.arrive.release.aligned;
  barrier.cluster.wait.acquire.aligned;
  mov.u32 %r1, %cluster_ctarank;
  mov.u32 %r2, {0};
  shr.u32 %r2, %r2, %r1;
  and.b32 %r2, %r2, 1;
  setp.eq.u32 %p1, %r2, 1;
  @%p0 bra issued;
  @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], {1};
  setp.ne.u32 %p2, %r1, 1;
  @%p2 bra issued;
  mov.u16 %h0, {0};
  createpolicy.fractional.L2::evict_last.b64 %rd0, 1.0;
  cp.async.bulk.tensor.2d.shared::cluster.global{4}.mbarrier::complete_tx::bytes.multicast::cluster{2} [%tile], [%map0, {{8,5}}], [%bar], %h0{3};
issued:
  bar.sync 0;
  @!%p1 bra waited;
)",
                  mask, sizes.transaction, hinted ? ".L2::cache_hint" : "", hinted ? ", %rd0" : "", mode) +
      wait_parity("%bar", 0, "wait") +
      "waited:\n  barrier.cluster.arrive.release.aligned;\n  barrier.cluster.wait.acquire.aligned;\n" +
      dump_tile(frame, sizes.footprint);
  Random random(name);
  std::vector<uint8_t> input = random_bytes(map.offset + sizes.tensor, random);
  MicroKernel kernel = make_kernel(kTensorCopies, name, frame, std::move(input), map.offset);
  kernel.maps.push_back(std::move(map));
  out.push_back(std::move(kernel));
}

// A map is copied to shared memory, a field replaced, published, and used by a load.
void add_replace(Kernels& out, const std::string& field, const std::string& type, const std::string& value,
                 const Box& before, const Box& after, const std::string& scope = "gpu") {
  const std::string insn = fmt::format("tensormap.replace.tile.{}.shared::cta.b1024.{} [map], {}{}", field,
                                       type, value, scope == "gpu" ? "" : " scope " + scope);
  BoxSizes sizes, sizes_before;
  MapSpec map = map_of(before, sizes_before);
  map_of(after, sizes);
  const int tile = std::max(sizes.footprint, sizes_before.footprint);
  Frame frame{.threads = 64, .tile_bytes = tile + 128, .maps = 1};
  map.offset = tile;
  frame.body =
      fill_tile(frame, tile) + kInitCopyBarrier +
      fmt::format(R"(  setp.ge.u32 %p1, %thread, 32;
  @%p1 bra copied;
  mad.wide.u32 %rd0, %lane, 4, %map0;
  ld.b32 %r0, [%rd0];
  mad.lo.u32 %r1, %lane, 4, %tile;
  st.shared.b32 [%r1+{0}], %r0;
  bar.warp.sync 0xffffffff;
  add.u32 %r2, %tile, {0};
  add.u64 %rd1, %goutput, {0};
  add.u64 %rd2, %ginput, {0};
  add.u64 %rd2, %rd2, 64;
  @%p0 bra replaced;
  tensormap.replace.tile.{1}.shared::cta.b1024.{2} [%r2], {3};
replaced:
  bar.warp.sync 0xffffffff;
  tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.{7}.sync.aligned [%rd1], [%r2], 128;
copied:
  bar.sync 0;
  add.u64 %rd1, %goutput, {0};
  @%p0 bra issued;
  fence.proxy.tensormap::generic.acquire.{7} [%rd1], 128;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], {4};
  cp.async.bulk.tensor.{5}d.shared::cluster.global.mbarrier::complete_tx::bytes [%tile], [%rd1, {{{6}}}], [%bar];
issued:
)",
                  tile, field, type, value, sizes.transaction, after.dims.size(), list(after.at), scope) +
      wait_parity("%bar", 0, "wait") + dump_tile(frame, tile) +
      // What the map's bytes are is the driver's affair, and they hold an address.
      fmt::format(
          "  bar.sync 0;\n  add.u64 %rd1, %goutput, {};\n  setp.lt.u32 %p1, %thread, 32;\n"
          "  mad.wide.u32 %rd0, %lane, 4, %rd1;\n  @%p1 st.global.b32 [%rd0], 0;\n",
          tile);
  Random random(insn);
  std::vector<uint8_t> input = random_bytes(tile, random);
  const std::vector<uint8_t> tensor = tensor_bytes(after, 16384, random);
  input.insert(input.end(), tensor.begin(), tensor.end());
  MicroKernel kernel = make_kernel(kTensorCopies, insn, frame, std::move(input), tile + 128);
  kernel.maps.push_back(std::move(map));
  out.push_back(std::move(kernel));
}

void add_replacements(Kernels& out) {
  const Box box{.type = 6, .dims = {64, 20}, .box = {32, 8}, .at = {48, 5}};
  const auto changed = [&](auto&& change) {
    Box after = box;
    change(after);
    return after;
  };
  add_replace(out, "global_address", "b64", "%rd2", box, box);
  for (const char* scope : {"cta", "cluster", "sys"})
    add_replace(out, "global_stride", "b64", "0, 256", box, box, scope);
  add_replace(out, "rank", "b32", "0", box,
              changed([](Box& b) { b.dims = {64}, b.box = {32}, b.at = {48}; }));
  add_replace(out, "box_dim", "b32", "1, 3", box, changed([](Box& b) { b.box = {32, 3}; }));
  add_replace(out, "global_dim", "b32", "0, 56", box, changed([](Box& b) { b.dims = {56, 20}; }));
  add_replace(out, "global_dim", "b32", "1, 7", box, changed([](Box& b) { b.dims = {64, 7}; }));
  add_replace(out, "global_stride", "b64", "0, 256", box, box);
  add_replace(out, "element_stride", "b32", "1, 3", box, changed([](Box& b) { b.element_strides = {1, 3}; }));
  add_replace(out, "swizzle_mode", "b32", "2", box, changed([](Box& b) { b.swizzle = 2; }));
  add_replace(out, "fill_mode", "b32", "1", box, box);
  add_replace(out, "elemtype", "b32", "10", box, box);
  add_replace(out, "interleave_layout", "b32", "0", box, box);
}

}  // namespace

void add_tensor_maps(Kernels& out) {
  add_multicast(out, 2, 0x3, false);
  add_multicast(out, 2, 0x1, false);
  add_multicast(out, 4, 0xB, false);
  add_multicast(out, 8, 0xA5, true);
  add_multicast(out, 4, 0xB, false, ".tile");
  add_multicast(out, 4, 0xD, true, ".tile");
  add_replacements(out);
}

}  // namespace imbrex::conformance
