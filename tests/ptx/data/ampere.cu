// SPDX-License-Identifier: Apache-2.0
// cp.async, ldmatrix, mma.sync and arrive/wait barriers as inline assembly, with scopes and local names.
#include <cstdint>

__device__ inline uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

__global__ void ampere(const uint4* a, const uint4* b, float* c, int size) {
  __shared__ alignas(128) uint4 sa[128], sb[128];
  __shared__ uint64_t barrier;
  uint32_t dst = shared_address(&sa[threadIdx.x]), dst_b = shared_address(&sb[threadIdx.x]), bar = shared_address(&barrier);
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(dst), "l"(a + threadIdx.x));
  asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(dst_b), "l"(b + threadIdx.x), "r"(size));
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(dst), "l"(a), "l"(policy));
  asm volatile("cp.async.commit_group;\n cp.async.wait_group 0;\n cp.async.wait_all;" ::: "memory");
  if (threadIdx.x == 0) asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(bar), "r"(128));
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(bar));
  uint64_t state;
  asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(state) : "r"(bar));
  for (int i = 0; i < 2; ++i)
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "WAIT:\n"
        "mbarrier.test_wait.shared.b64 done, [%0], %1;\n"
        "@done bra DONE;\n"
        "bra WAIT;\n"
        "DONE:\n"
        "}" ::"r"(bar),
        "l"(state));
  uint32_t ra[4], rb[2];
  float d[4] = {};
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(ra[0]), "=r"(ra[1]), "=r"(ra[2]), "=r"(ra[3])
               : "r"(dst));
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];" : "=r"(rb[0]), "=r"(rb[1]) : "r"(dst_b));
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rb[1]));
  int e[4] = {};
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.u8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+r"(e[0]), "+r"(e[1]), "+r"(e[2]), "+r"(e[3])
      : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rb[1]));
  uint32_t lut, permuted;
  asm("lop3.b32 %0, %1, %2, %3, 0x96;" : "=r"(lut) : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]));
  asm("prmt.b32.f4e %0, %1, %2, %3;" : "=r"(permuted) : "r"(ra[0]), "r"(ra[1]), "r"(3));
  for (int i = 0; i < 4; ++i) c[threadIdx.x * 4 + i] = d[i] + e[i] + lut + permuted;
}
