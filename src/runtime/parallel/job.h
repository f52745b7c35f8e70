// SPDX-License-Identifier: Apache-2.0
// Which of several processes this one is, as launchers say it in environment variables.
#pragma once

#include <functional>
#include <string>

namespace imbrex::runtime {

struct Job {
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;  // on this server; of a program's own subset of ranks the GPU's number
  std::string launcher;                // as messages name it; "" where there is none
  std::string name;                    // that all ranks know, and no other job of the user
  std::string address;     // "host:port" where rank 0 listens for other servers; "" where nothing says
  std::string ended_file;  // where the launcher writes which ranks have ended; "" where none does
  bool is_on_one_server() const { return local_size == size; }
};

/// `variable(NAME)`: its value or null, as std::getenv. Rank 0 of 1 where there is no launcher. LaunchError for values that
/// make no sense, naming the variable.
Job job_of_environment(const std::function<const char*(const char*)>& variable);

/// Of a rank whose process has ended, as the launcher tells: "rank 1 was killed by signal 9 (Killed)". "" while all run, and
/// where no launcher tells. Until ranks have connected, nobody else can know.
std::string ended_rank(const Job& job);

}  // namespace imbrex::runtime
