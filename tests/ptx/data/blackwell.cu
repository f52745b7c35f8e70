// SPDX-License-Identifier: Apache-2.0
// Tensor Memory, tcgen05.mma, commit, cluster launch control.
#include <cstdint>

__device__ inline uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

__global__ void __launch_bounds__(128) blackwell(float* out, uint64_t desc_a, uint64_t desc_b, uint32_t idesc, uint32_t accumulate) {
  __shared__ uint32_t tmem_slot;
  __shared__ uint64_t done;
  __shared__ uint4 response;
  uint32_t bar = shared_address(&done), slot = shared_address(&tmem_slot), answer = shared_address(&response);
  if (threadIdx.x < 32) {
    asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(slot), "r"(128));
    asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;");
  }
  if (threadIdx.x == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(bar));
  asm volatile("tcgen05.fence::before_thread_sync;");
  __syncthreads();
  asm volatile("tcgen05.fence::after_thread_sync;");
  uint32_t tmem = tmem_slot;
  if (threadIdx.x == 0) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.b32 p, %4, 0;\n"
        "tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, {%5, %6, %7, %8}, p;\n"
        "}" ::"r"(tmem),
        "l"(desc_a), "l"(desc_b), "r"(idesc), "r"(accumulate), "r"(0), "r"(0), "r"(0), "r"(0));
    asm volatile("tcgen05.cp.cta_group::1.32x128b.warpx4 [%0], %1;" ::"r"(tmem + 64), "l"(desc_a));
    asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(bar));
    asm volatile(
        "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.multicast::cluster::all.b128 [%0], [%1];" ::"r"(answer),
        "r"(bar));
  }
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "again:\n"
      "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [%0], 0;\n"
      "@!p bra again;\n"
      "}" ::"r"(bar));
  uint32_t canceled, x;
  asm volatile(
      "{\n"
      ".reg .b128 q;\n"
      ".reg .pred p;\n"
      ".reg .b32 y, z;\n"
      "ld.shared.b128 q, [%2];\n"
      "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 p, q;\n"
      "selp.u32 %0, 1, 0, p;\n"
      "@p clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {%1, y, z, _}, q;\n"
      "}"
      : "=r"(canceled), "=r"(x)
      : "r"(answer));
  uint32_t r[4];
  asm volatile("tcgen05.ld.sync.aligned.32x32b.x4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(tmem));
  asm volatile("tcgen05.wait::ld.sync.aligned;");
  asm volatile("tcgen05.st.sync.aligned.16x64b.x2.b32 [%0], {%1, %2};" ::"r"(tmem), "r"(r[0]), "r"(r[1]));
  asm volatile("tcgen05.wait::st.sync.aligned;");
  __syncthreads();
  if (threadIdx.x < 32) asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(tmem), "r"(128));
  out[threadIdx.x] = __int_as_float(r[0] + r[1] + r[2] + r[3]) + canceled + x;
}
