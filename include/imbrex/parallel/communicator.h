// SPDX-License-Identifier: Apache-2.0
// Ranks: one per GPU of a node, each with a device of its own, and the few things that their host programs do together.
//
//   run_ranks(Ranks::virtual_node(4, {.target = "sm_90a", .seed = 7}), [&](Communicator& ranks) {
//     SymmetricTensor x = ranks.symmetric(float32, {n});
//     x.mine().copy_from(inputs[ranks.rank()]);
//     ranks.barrier();
//     ...  // kernels that read x of other ranks
//     ranks.synchronize();
//   });
//
// The same program runs on the GPUs of a server with Ranks::cuda(4), and with Ranks::from_environment() as one process per
// rank, started by torchrun, mpirun, srun or `imbrex launch`. See docs/parallel.md.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "imbrex/core/source_location.h"
#include "imbrex/parallel/symmetric_tensor.h"
#include "imbrex/runtime/device.h"
#include "imbrex/runtime/stream.h"
#include "imbrex/vgpu/options.h"

namespace imbrex::runtime {
struct Job;
class RankLink;
}  // namespace imbrex::runtime

namespace imbrex::parallel {

class Ranks;

/// One rank's handle of all of them. A handle: cheap to copy. One thread uses it: that which run_ranks() has made for the
/// rank, or which has called join().
class Communicator {
 public:
  /// This process as one of Ranks::from_environment(), for programs that have no function to give to run_ranks(). Returns when
  /// all ranks have come. DeviceError naming those that have not within Ranks::patience(), and where ranks differ in
  /// their number, their GPUs or their build of Imbrex; LaunchError for Ranks that are threads, and for ranks on several
  /// servers where nothing says where rank 0 is (docs/parallel.md). Every process makes its communicators in the same order.
  static Communicator join(const Ranks& ranks);
  /// Tells the others that this rank's program has ended, as the end of the last handle does too; `why`: the error by which
  /// it did, which ends what the others wait for. The process of rank 0 waits here until the other ranks have left: it
  /// keeps them together. Twice is no harm. After this the rank's virtual GPU is of no use.
  void leave(const std::string& why = "");

  int rank() const;
  int size() const;
  /// The rank's own GPU.
  const Device& device() const;

  // Called by every rank, in the same order and with the same arguments. DeviceError on every rank, naming those that
  // differ, where that is not so; and where a rank has ended, or does not come within the time of Ranks::patience.

  /// Waits for the rank's device, then for the other ranks: what any rank's host or kernels did before is visible to what
  /// any rank does after.
  void barrier(SourceLocation where = SourceLocation::current());
  /// The texts of all ranks, by rank.
  std::vector<std::string> gather(const std::string& text, SourceLocation where = SourceLocation::current());
  /// A tensor of this type and shape on every rank, of undefined contents. It is freed with the last handle of the
  /// communicator. DeviceError where a rank has not enough memory, or GPUs cannot reach one another's.
  SymmetricTensor symmetric(DataType dtype, const std::vector<int64_t>& shape,
                            SourceLocation where = SourceLocation::current());
  /// `count` signals on every rank, for signal::set() and signal::wait(): int32, all zero on every rank when this
  /// returns. synchronize() knows them.
  SymmetricTensor signals(int64_t count, SourceLocation where = SourceLocation::current());

  /// For a call whose kernels wait for each other: DeviceError where ranks make it with different types or sizes. They meet the
  /// first time that the call has these, and not again: a rank that then calls with others, which are new to it, meets nobody.
  void agree(const char* call, DataType dtype, std::initializer_list<int64_t> sizes,
             SourceLocation where = SourceLocation::current()) const;

  /// Whether kernels reach the memory of other ranks. On GPUs without peer access they do not: then the collectives
  /// (AllReduce, AllGather, ReduceScatter, the fused products) go through NCCL 2.19 or later, whose sums are added in an order of
  /// its own, and whatever needs all() of a SymmetricTensor is a LaunchError. Rank 0 says so on stderr when the ranks come together, and
  /// DeviceError is thrown where there is no NCCL. (IMBREX_NO_PEERS=1 makes it so for a test; on virtual
  /// GPUs the ranks' host programs then carry what NCCL would, which waits and cannot be captured.)
  bool reaches_peers() const;
  /// y = the sum of all ranks' x; of dense tensors of one type and shape, by NCCL, without waiting; where reaches_peers() is
  /// false. LaunchError for types that NCCL does not add.
  void all_reduce_by_nccl(const DeviceTensor& x, const DeviceTensor& y, const Stream& stream,
                          SourceLocation where = SourceLocation::current());
  /// y = the x of all ranks, one behind the other.
  void all_gather_by_nccl(const DeviceTensor& x, const DeviceTensor& y, const Stream& stream,
                          SourceLocation where = SourceLocation::current());
  /// y = this rank's part of the sum of all ranks' x, of as many parts as there are ranks.
  void reduce_scatter_by_nccl(const DeviceTensor& x, const DeviceTensor& y, const Stream& stream,
                              SourceLocation where = SourceLocation::current());

  /// Waits for the rank's device, for what is on its own stream at most for the time of Ranks::patience (for what a program
  /// has put on other streams, without a bound: wait for those after this). Where a kernel has not ended by then, a
  /// signal that it waits for has not come: all signals of this rank are then set to a large value, which ends every
  /// signal::wait(), and DeviceError tells where the other ranks stand and what this rank's signals were. After that the
  /// communicator is of no use. Whatever else of Imbrex waits for the device's own stream, as DeviceTensor::to_host() does, is
  /// bounded in the same way.
  /// (On the virtual GPU kernels that wait in vain are found at once, and reported by their launch.)
  void synchronize(SourceLocation where = SourceLocation::current());
  /// The same for one stream of the rank's device, which is all that is waited for: kernels that wait for other ranks may be
  /// on any stream, if this is how their end is awaited.
  void synchronize(const Stream& stream, SourceLocation where = SourceLocation::current());

  explicit Communicator(std::shared_ptr<runtime::RankLink> link) : link_(std::move(link)) {}

 private:
  std::shared_ptr<runtime::RankLink> link_;
};

/// Where a rank of Ranks::of_process() is among the servers; as it is, all ranks are on one.
struct ServerOfRank {
  int gpu = -1;   ///< the rank's, of this server's; -1: of its rank's number
  int ranks = 0;  ///< on this server; 0: all
  std::string address =
      {};  ///< HOST:PORT at which rank 0 listens, the same for all, where ranks are on several
};

/// On which GPUs ranks run.
class Ranks {
 public:
  /// `count` virtual GPUs with these options (vgpu::VirtualNode), 1 to 16. Launches of different ranks run at the same
  /// time, interleaved by the seed. Each rank has Options::memory_bytes.
  static Ranks virtual_node(int count, vgpu::Options options = {});
  /// The CUDA devices 0 to count - 1 of this process.
  static Ranks cuda(int count);
  /// One rank per process, as the launcher's environment variables say: of torchrun (RANK, WORLD_SIZE, LOCAL_RANK; also set
  /// by `imbrex launch` and by hand), Open MPI's mpirun, srun, MPICH's mpiexec. Without any, this process is rank 0 of 1.
  /// `kind`: "cuda", each rank on the GPU of its number on this server; "virtual", the node of virtual_node() in the process
  /// of rank 0, where the others' launches are run too; "auto": "cuda" where this process sees a GPU for each rank of this
  /// server (or just one, chosen for it), otherwise "virtual". LaunchError for another word, and for variables that
  /// contradict each other.
  static Ranks from_environment(std::string_view kind = "auto", vgpu::Options options = {});
  /// The same for a program that knows its rank otherwise: rank `rank` of `size`, of which each says the same `job` and no other
  /// job of the user does. LaunchError for a rank that is none of them, and for several servers without an address.
  static Ranks of_process(int rank, int size, const std::string& job, std::string_view kind = "auto",
                          vgpu::Options options = {}, const ServerOfRank& server = {});
  /// How many CUDA devices there are; 0 without a driver.
  static int cuda_devices();

  /// How long a rank waits for another on the host, and for its kernels (Communicator::synchronize()); 60 s.
  Ranks& patience(double seconds) {
    patience_ = seconds;
    return *this;
  }
  int count() const { return count_; }
  bool is_virtual() const { return is_virtual_; }
  const vgpu::Options& options() const { return options_; }
  double patience() const { return patience_; }
  /// Null where ranks are threads of this process.
  const std::shared_ptr<const runtime::Job>& job() const { return job_; }

 private:
  static Ranks of_job(const runtime::Job& job, std::string_view kind, vgpu::Options options);
  int count_ = 1;
  bool is_virtual_ = true;
  vgpu::Options options_;
  double patience_ = 60;  // in seconds
  std::shared_ptr<const runtime::Job> job_;
};

/// Runs `body` on a thread per rank and returns when all have ended; with Ranks::from_environment(), on this thread for this
/// process's rank. Where it throws on a rank, the other ranks' calls that wait for that rank throw DeviceError naming it, and
/// the first error (of a process, its own) is thrown here. A process that ends in between is an error on all others
/// within a second. LaunchError where there are not so many GPUs.
void run_ranks(const Ranks& ranks, const std::function<void(Communicator&)>& body);

}  // namespace imbrex::parallel
