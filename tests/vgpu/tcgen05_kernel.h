// SPDX-License-Identifier: Apache-2.0
// A kernel around tcgen05 instructions: shared and tensor memory are filled from images, one thread issues,
// both are dumped. With cta_group 2 a cluster of two CTAs, each with images of its own.
#pragma once

#include "register_kernel.h"

namespace imbrex::vgpu {

struct Tcgen05Kernel {
  static constexpr int kTensorColumns = 128;  // of the image; the allocation has 512
  static constexpr int kSharedBytes = 65536;

  int cta_group = 1;
  std::string
      body;  // thread 0 of the (even) CTA; %r10 tile as a descriptor start, %r11 tensor memory, %rd10.. free
  std::string warps;  // then every warp: %r12 is its quarter's address
  int seed = 0;
  TensorMath math = TensorMath::kExact;

  using SharedImage = std::vector<uint8_t>;
  struct TensorImage {
    std::vector<uint32_t> cells = std::vector<uint32_t>(128 * kTensorColumns, 0xDEADBEEF);
    uint32_t& at(int lane, int column) { return cells[static_cast<size_t>(column * 128 + lane)]; }
  };

  std::string text() const {
    std::string t = fmt::format(R"(
.version 9.0
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 tile_in, .param .u64 tmem_in, .param .u64 tmem_out)
.reqntid 128
{1}
{{
  .reg .pred %p<8>;
  .reg .b16 %h<4>;
  .reg .b32 %r<64>;
  .reg .b64 %rd<32>;
  .shared .align 1024 .b8 tile[{2}];
  .shared .align 8 .b64 barrier;
  .shared .align 4 .b32 taddr;
  ld.param.u64 %rd1, [tile_in];
  ld.param.u64 %rd2, [tmem_in];
  ld.param.u64 %rd3, [tmem_out];
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, %ctaid.x;
  mad.wide.u32 %rd1, %r2, {2}, %rd1;
  mad.wide.u32 %rd2, %r2, {3}, %rd2;
  mad.wide.u32 %rd3, %r2, {3}, %rd3;
  mov.u32 %r3, tile;
  mov.u32 %r4, barrier;
  mov.u32 %r5, taddr;
  shr.u32 %r6, %r1, 5;
  shl.b32 %r7, %r1, 2;
fill:
  cvt.u64.u32 %rd4, %r7;
  add.u64 %rd4, %rd4, %rd1;
  ld.global.b32 %r8, [%rd4];
  add.u32 %r9, %r3, %r7;
  st.shared.b32 [%r9], %r8;
  add.u32 %r7, %r7, 512;
  setp.lt.u32 %p1, %r7, {2};
  @%p1 bra fill;
  setp.ne.u32 %p2, %r6, 0;
  @%p2 bra allocated;
  tcgen05.alloc.cta_group::{0}.sync.aligned.shared::cta.b32 [%r5], 512;
  tcgen05.relinquish_alloc_permit.cta_group::{0}.sync.aligned;
allocated:
  setp.ne.u32 %p3, %r1, 0;
  @!%p3 mbarrier.init.shared::cta.b64 [%r4], 1;
  @!%p3 fence.mbarrier_init.release.cluster;
  fence.proxy.async;
  bar.sync 0;
  ld.shared.u32 %r11, [%r5];
  shl.b32 %r12, %r6, 21;
  add.u32 %r12, %r12, %r11;
  mul.wide.u32 %rd4, %r1, 4;
  add.u64 %rd2, %rd2, %rd4;
  add.u64 %rd3, %rd3, %rd4;
)",
                                cta_group, cta_group == 2 ? ".reqnctapercluster 2, 1, 1" : "", kSharedBytes,
                                128 * kTensorColumns * 4);
    for (int c = 0; c < kTensorColumns; ++c)
      t += fmt::format(
          "  ld.global.b32 %r13, [%rd2+{}];\n  add.u32 %r14, %r12, {};\n"
          "  tcgen05.st.sync.aligned.32x32b.x1.b32 [%r14], {{%r13}};\n",
          c * 512, c);
    t += "  tcgen05.wait::st.sync.aligned;\n  tcgen05.fence::before_thread_sync;\n" + sync();
    t += "  tcgen05.fence::after_thread_sync;\n";
    if (cta_group == 2)
      t += "  mov.u32 %r15, %cluster_ctarank;\n  or.b32 %r15, %r15, %r1;\n  setp.ne.u32 %p3, %r15, 0;\n";
    t += "  @%p3 bra issued;\n  and.b32 %r10, %r3, 0x3FFFF;\n  shr.u32 %r10, %r10, 4;\n" + body;
    t += cta_group == 2 ? "  mov.b16 %h1, 3;\n  "
                          "tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::"
                          "cluster.b64 [%r4], %h1;\n"
                        : "  tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r4];\n";
    t += "issued:\nwait:\n  mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r4], 0;\n  @!%p4 bra wait;\n"
         "  bar.warp.sync 0xFFFFFFFF;\n  tcgen05.fence::after_thread_sync;\n" +
         warps;
    for (int c = 0; c < kTensorColumns; ++c)
      t += fmt::format(
          "  add.u32 %r14, %r12, {};\n  tcgen05.ld.sync.aligned.32x32b.x1.b32 {{%r13}}, [%r14];\n"
          "  tcgen05.wait::ld.sync.aligned;\n  st.global.b32 [%rd3+{}], %r13;\n",
          c, c * 512);
    t += "  tcgen05.fence::before_thread_sync;\n" + sync();
    t += fmt::format(
        "  @%p2 bra end;\n  tcgen05.dealloc.cta_group::{}.sync.aligned.b32 %r11, 512;\nend:\n  ret;\n}}\n",
        cta_group);
    return t;
  }

  struct Result {
    Report report;
    std::vector<TensorImage> tensor;  // by rank
  };
  Result run(const std::vector<SharedImage>& shared, const std::vector<TensorImage>& tensor) const {
    VirtualGpu gpu({.target = "sm_100a", .seed = static_cast<uint64_t>(seed), .tensor_math = math});
    std::vector<uint8_t> tile;
    for (SharedImage image : shared) {
      image.resize(kSharedBytes);
      tile.insert(tile.end(), image.begin(), image.end());
    }
    std::vector<uint32_t> cells;
    for (const TensorImage& image : tensor) cells.insert(cells.end(), image.cells.begin(), image.cells.end());
    DeviceAddress a = to_device(gpu, tile), b = to_device(gpu, cells),
                  c = gpu.allocate(static_cast<int64_t>(cells.size() * 4));
    void* arguments[] = {&a, &b, &c};
    Function k = gpu.load_module(text(), "tcgen05.ptx").function("k");
    Result result;
    result.report = gpu.launch(k, {.grid = {cta_group}, .block = {128}, .arguments = arguments});
    const std::vector<uint32_t> out = from_device<uint32_t>(gpu, c, cells.size());
    for (size_t rank = 0; rank < tensor.size(); ++rank) {
      const size_t count = tensor[rank].cells.size();
      TensorImage image;
      image.cells.assign(out.begin() + static_cast<int64_t>(rank * count),
                         out.begin() + static_cast<int64_t>((rank + 1) * count));
      result.tensor.push_back(image);
    }
    return result;
  }

 private:
  std::string sync() const {
    return cta_group == 2 ? "  barrier.cluster.arrive.aligned;\n  barrier.cluster.wait.aligned;\n"
                          : "  bar.sync 0;\n";
  }
};

}  // namespace imbrex::vgpu
