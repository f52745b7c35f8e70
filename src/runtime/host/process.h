// SPDX-License-Identifier: Apache-2.0
// Other programs: run to their end, or kept as workers that are asked line by line and can be killed.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

namespace imbrex::runtime {

struct ProcessResult {
  int exit_code = -1;  ///< 128 + signal when one ended it
  bool timed_out = false;
  std::string output;  ///< stdout and stderr together
};

/// Runs argv[0] (a path, or a name looked up in PATH) to its end; kills it after `timeout_s` seconds. A
/// program that cannot be started gives exit code 127 and the reason as output.
ProcessResult run_process(const std::vector<std::string>& argv, double timeout_s);

/// A child asked by lines on its stdin that answers by lines on its stdout. Its stderr is ours. It is in a
/// process group of its own, so that a Ctrl-C is ours alone; killed with this object, and what it has
/// started with it, and by the system when the thread that made it ends.
class WorkerProcess {
 public:
  /// `environment`: variables set for the child, besides ours.
  WorkerProcess(const std::vector<std::string>& argv,
                const std::vector<std::pair<std::string, std::string>>& environment);
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  enum class Outcome { kAnswered, kTimedOut, kDied };
  void send(const std::string& line);
  /// Waits for the next line. After a time-out or death the child is gone; see how_it_ended().
  Outcome receive(double timeout_s, std::string& line);
  /// How the child ended: "killed by signal 11 (Segmentation fault)".
  const std::string& how_it_ended() const { return how_it_ended_; }
  bool is_alive() const { return pid_ > 0; }
  pid_t pid() const { return pid_; }
  void kill();

 private:
  /// The child is gone; `status` is what waitpid() said.
  void note_end(int status);

  pid_t pid_ = -1;
  int to_ = -1, from_ = -1;
  std::string pending_;  // read, and not yet a whole line
  std::string how_it_ended_;
};

}  // namespace imbrex::runtime
