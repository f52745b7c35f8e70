// SPDX-License-Identifier: Apache-2.0
// Where ranks wait for one another: to exchange texts, and, on a virtual node, to run their kernels at the same time.
// Each rank is a thread of this process; of a rank that is a process of its own, the thread that serves it.
//
// A rank is in its host program, or has come to a meeting, or has launched, or has ended. While one is in its host
// program the others wait. When none is, the launches of those that have launched run together, and each of these ranks
// goes on when they have ended; where nobody has launched, all have come to the meeting, and it takes place. So what
// runs together depends on the ranks' programs alone, not on the speed of their threads.
#pragma once

#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "imbrex/core/source_location.h"
#include "imbrex/vgpu/virtual_node.h"
#include "runtime/host/channel.h"

namespace imbrex::runtime {

/// What a rank brings to a meeting, for all.
struct Brought {
  std::string text;
  std::shared_ptr<const FileDescriptor> file;  // null: none
};

class Meeting {
 public:
  /// At a call of this name the virtual node is told that the host has waited for all ranks.
  static constexpr const char* kBarrier = "barrier";

  /// `node`: null where kernels run on CUDA GPUs. `patience` in seconds.
  Meeting(int ranks, std::shared_ptr<vgpu::VirtualNode> node, double patience);

  /// Waits until all ranks have come with the same `call` ("barrier"), and returns what each of them brought. DeviceError
  /// on all where one calls something else, has ended, or does not come in time.
  std::vector<Brought> meet(int rank, const std::string& call, Brought brought, SourceLocation where);
  /// Runs the launch together with those of the other ranks.
  vgpu::Report launch(int rank, const vgpu::Function& function, const vgpu::Launch& launch);
  /// The rank's program has ended; `why` is the error, "" where there was none.
  void end(int rank, const std::string& why);
  /// The rank is gone, whatever it was about to do: an error on all who call something from here on, or wait.
  void lose(int rank, const std::string& why);
  /// Where the ranks stand but for this one: "rank 1 has ended".
  std::vector<std::string> others(int rank);
  /// Whether ranks cannot go on together, and have been told so or will be.
  bool is_broken() {
    const std::lock_guard lock(mutex_);
    return !broken_.empty();
  }

 private:
  enum class At : uint8_t { kHostProgram, kMeeting, kLaunch, kEnd };
  struct Seat {
    At at = At::kHostProgram;
    std::string call;  // kMeeting
    Brought brought;
    SourceLocation where;
    const vgpu::Function* function = nullptr;  // kLaunch
    const vgpu::Launch* launch = nullptr;
    std::optional<vgpu::Report> report;
    std::exception_ptr failure;
    std::shared_ptr<const std::vector<Brought>> all;  // of the meeting that took place
    std::string why_ended;
  };

  /// Something has changed: what can happen now, happens.
  void advance();
  void run_launches();
  /// What ended a run is told to all whose kernels it ended, with the ranks that have launched nothing.
  void tell_all(std::vector<vgpu::Report>& reports) const;
  /// The ranks cannot go on together.
  void break_up(std::string why, std::string help);
  /// Waits until the rank's seat is back in its host program.
  void wait(std::unique_lock<std::mutex>& lock, int rank, const char* what);
  [[noreturn]] void refuse(SourceLocation where) const;
  std::string text_of(int rank) const;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Seat> seats_;
  std::shared_ptr<vgpu::VirtualNode> node_;
  double patience_;
  std::string broken_, help_;       // why, and what to do; "" while all is well
  std::vector<std::string> facts_;  // where each rank stood when it broke
};

}  // namespace imbrex::runtime
