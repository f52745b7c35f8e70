// SPDX-License-Identifier: Apache-2.0
// Clusters, TMA, transaction barriers, wgmma, register reallocation, grid dependencies: the words Hopper kernels are made of.
#include <cstdint>

struct alignas(64) TensorMap {
  uint64_t words[16];
};
__device__ inline uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }
__device__ inline void wait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred P1;\n"
      "LAB_WAIT:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 P1, [%0], %1, %2;\n"
      "@P1 bra DONE;\n"
      "bra LAB_WAIT;\n"
      "DONE:\n"
      "}" ::"r"(barrier),
      "r"(parity), "r"(0x989680));
}
__device__ inline bool elect() {
  uint32_t pred = 0;
  asm volatile(
      "{\n"
      ".reg .b32 %%rx;\n"
      ".reg .pred %%px;\n"
      "elect.sync %%rx|%%px, %1;\n"
      "@%%px mov.s32 %0, 1;\n"
      "}"
      : "+r"(pred)
      : "r"(0xffffffff));
  return pred != 0;
}

__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1)
    hopper(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_c, float* out) {
  extern __shared__ __align__(1024) uint8_t shared[];
  __shared__ uint64_t full, empty;
  uint32_t tile = shared_address(shared), bar = shared_address(&full), bar2 = shared_address(&empty);
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map_a));
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(1));
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar2), "r"(2));
    asm volatile("fence.mbarrier_init.release.cluster;");
    asm volatile("fence.proxy.async;");
  }
  asm volatile("barrier.cluster.arrive.release.aligned;\n barrier.cluster.wait.acquire.aligned;");
  asm volatile("griddepcontrol.wait;");
  if (threadIdx.x / 128 == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (elect()) {
      wait(bar2, 1);
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(16384));
      asm volatile(
          "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint"
          " [%0], [%1, {%3, %4}], [%2], %5, %6;" ::"r"(tile),
          "l"(&map_a), "r"(bar), "r"(0), "r"(blockIdx.x * 64), "h"(static_cast<uint16_t>(3)), "l"(0x14f0000000000000));
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    wait(bar, 0);
    float d[4] = {};
    uint64_t desc = (tile >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
    asm volatile("wgmma.fence.sync.aligned;");
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.b32 p, %6, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, p, 1, 1, 0, 0;\n"
        "}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "l"(desc), "l"(desc + 256), "r"(1));
    asm volatile("wgmma.commit_group.sync.aligned;\n wgmma.wait_group.sync.aligned 0;");
    uint32_t remote;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(bar2), "r"(0));
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(remote));
    asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(tile), "r"(__float_as_int(d[0])), "r"(__float_as_int(d[1])));
    asm volatile("fence.proxy.async.shared::cta;\n bar.sync %0, %1;" ::"r"(1), "r"(256));
    if (elect()) {
      asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(&map_c), "r"(tile), "r"(0), "r"(0));
      asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], 512;" ::"l"(out), "r"(tile));
      asm volatile("cp.async.bulk.commit_group;\n cp.async.bulk.wait_group.read 0;");
    }
    out[threadIdx.x] = d[0] + d[1] + d[2] + d[3];
  }
  asm volatile("griddepcontrol.launch_dependents;");
}
