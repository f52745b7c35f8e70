// SPDX-License-Identifier: Apache-2.0
#include "vgpu/program/decode.h"

namespace imbrex::vgpu {

bool decode_mbarrier(Decoder&, Instruction&);
bool decode_cp_async(Decoder&, Instruction&);
bool decode_bulk_copy(Decoder&, Instruction&);
bool decode_bulk_groups(Decoder&, Instruction&);
bool decode_tma_load(Decoder&, Instruction&);
bool decode_tma_store(Decoder&, Instruction&);
bool decode_cluster_barrier(Decoder&, Instruction&);
bool decode_launch_control(Decoder&, Instruction&);
bool decode_remote_store(Decoder&, Instruction&);
bool decode_tcgen05_alloc(Decoder&, Instruction&);
bool decode_tcgen05_commit(Decoder&, Instruction&);
bool decode_tcgen05_copy(Decoder&, Instruction&);
bool decode_tcgen05_mma(Decoder&, Instruction&);
bool decode_tcgen05_transfer(Decoder&, Instruction&);
bool decode_matrix_moves(Decoder&, Instruction&);
bool decode_mma_sync(Decoder&, Instruction&);
bool decode_tensormap(Decoder&, Instruction&);
bool decode_wgmma(Decoder&, Instruction&);
bool decode_wmma(Decoder&, Instruction&);

std::initializer_list<DecodeFunction> unit_families_of(ptx::Op op) {
  using ptx::Op;
  // Static, because an initializer_list does not own its elements.
  static constexpr std::initializer_list<DecodeFunction> kNone = {};
  static constexpr std::initializer_list<DecodeFunction> kMbarrier = {decode_mbarrier};
  static constexpr std::initializer_list<DecodeFunction> kCpAsync = {decode_cp_async};
  static constexpr std::initializer_list<DecodeFunction> kBulkCopy = {decode_bulk_copy};
  static constexpr std::initializer_list<DecodeFunction> kBulkGroups = {decode_bulk_groups};
  static constexpr std::initializer_list<DecodeFunction> kTensorCopy = {decode_tma_load, decode_tma_store};
  static constexpr std::initializer_list<DecodeFunction> kClusterBarrier = {decode_cluster_barrier};
  static constexpr std::initializer_list<DecodeFunction> kLaunchControl = {decode_launch_control};
  static constexpr std::initializer_list<DecodeFunction> kRemoteStore = {decode_remote_store};
  static constexpr std::initializer_list<DecodeFunction> kTcgen05Alloc = {decode_tcgen05_alloc};
  static constexpr std::initializer_list<DecodeFunction> kTcgen05Commit = {decode_tcgen05_commit};
  static constexpr std::initializer_list<DecodeFunction> kTcgen05Copy = {decode_tcgen05_copy};
  static constexpr std::initializer_list<DecodeFunction> kTcgen05Mma = {decode_tcgen05_mma};
  static constexpr std::initializer_list<DecodeFunction> kTcgen05Transfer = {decode_tcgen05_transfer};
  static constexpr std::initializer_list<DecodeFunction> kWgmma = {decode_wgmma};
  static constexpr std::initializer_list<DecodeFunction> kMatrixMoves = {decode_matrix_moves};
  static constexpr std::initializer_list<DecodeFunction> kMmaSync = {decode_mma_sync};
  static constexpr std::initializer_list<DecodeFunction> kWmma = {decode_wmma};
  static constexpr std::initializer_list<DecodeFunction> kTensormap = {decode_tensormap};
  switch (op) {
    case Op::mbarrier_init:
    case Op::mbarrier_inval:
    case Op::mbarrier_expect_tx:
    case Op::mbarrier_complete_tx:
    case Op::mbarrier_arrive:
    case Op::mbarrier_arrive_drop:
    case Op::mbarrier_test_wait:
    case Op::mbarrier_try_wait:
    case Op::mbarrier_pending_count:
      return kMbarrier;
    case Op::cp_async:
    case Op::cp_async_commit_group:
    case Op::cp_async_wait_group:
    case Op::cp_async_wait_all:
    case Op::cp_async_mbarrier_arrive:
      return kCpAsync;
    case Op::cp_async_bulk:
    case Op::cp_reduce_async_bulk:
    case Op::cp_async_bulk_prefetch:
      return kBulkCopy;
    case Op::cp_async_bulk_commit_group:
    case Op::cp_async_bulk_wait_group:
      return kBulkGroups;
    case Op::cp_async_bulk_tensor:
    case Op::cp_reduce_async_bulk_tensor:
    case Op::cp_async_bulk_prefetch_tensor:
      return kTensorCopy;
    case Op::barrier_cluster_arrive:
    case Op::barrier_cluster_wait:
      return kClusterBarrier;
    case Op::clusterlaunchcontrol_try_cancel:
    case Op::clusterlaunchcontrol_query_cancel:
    case Op::griddepcontrol:
    case Op::setmaxnreg:
      return kLaunchControl;
    case Op::st_async:
    case Op::red_async:
      return kRemoteStore;
    case Op::tcgen05_alloc:
    case Op::tcgen05_dealloc:
    case Op::tcgen05_relinquish_alloc_permit:
      return kTcgen05Alloc;
    case Op::tcgen05_commit:
    case Op::tcgen05_fence_before_thread_sync:
    case Op::tcgen05_fence_after_thread_sync:
      return kTcgen05Commit;
    case Op::tcgen05_cp:
    case Op::tcgen05_shift:
      return kTcgen05Copy;
    case Op::tcgen05_mma:
    case Op::tcgen05_mma_ws:
      return kTcgen05Mma;
    case Op::tcgen05_ld:
    case Op::tcgen05_st:
    case Op::tcgen05_wait_ld:
    case Op::tcgen05_wait_st:
      return kTcgen05Transfer;
    case Op::tensormap_replace:
    case Op::tensormap_cp_fenceproxy:
      return kTensormap;
    case Op::ldmatrix:
    case Op::stmatrix:
    case Op::movmatrix:
      return kMatrixMoves;
    case Op::mma_sync:
      return kMmaSync;
    case Op::wmma_load_a:
    case Op::wmma_load_b:
    case Op::wmma_load_c:
    case Op::wmma_store_d:
    case Op::wmma_mma:
      return kWmma;
    case Op::wgmma_mma_async:
    case Op::wgmma_fence:
    case Op::wgmma_commit_group:
    case Op::wgmma_wait_group:
      return kWgmma;
    default:
      return kNone;
  }
}

}  // namespace imbrex::vgpu
