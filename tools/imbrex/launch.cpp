// SPDX-License-Identifier: Apache-2.0
// imbrex launch -n N -- PROGRAM ARGS: starts the program once per rank, with the environment variables that torchrun
// sets, and ends the other ranks when one has failed.
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>

#include "imbrex/core/error.h"
#include "subcommands.h"

namespace imbrex::command {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  int ranks = 2;
  double grace = 10;
};

/// A port that nobody uses, for programs whose ranks also meet by TCP (torch.distributed).
int free_port() {
  const int socket_file = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  const bool is_found = socket_file >= 0 &&
                        bind(socket_file, reinterpret_cast<sockaddr*>(&address), length) == 0 &&
                        getsockname(socket_file, reinterpret_cast<sockaddr*>(&address), &length) == 0;
  if (socket_file >= 0) close(socket_file);
  return is_found ? ntohs(address.sin_port) : 29500;
}

struct Rank {
  pid_t process = -1;
  bool is_running = false;
  bool is_ended_here = false;  // by this program, which has said so
};

/// Which ranks have ended, a line for each: a file in memory, which ranks find by this program's entry in /proc, whatever
/// starts them in between. Those that wait for others to come read it.
class EndedRanks {
 public:
  EndedRanks() : file_(memfd_create("ranks that have ended", MFD_CLOEXEC)) {}
  ~EndedRanks() {
    if (file_ >= 0) close(file_);
  }
  EndedRanks(const EndedRanks&) = delete;
  EndedRanks& operator=(const EndedRanks&) = delete;
  /// "" where there is none.
  std::string path() const { return file_ < 0 ? "" : fmt::format("/proc/{}/fd/{}", getpid(), file_); }
  void add(const std::string& how) {
    const std::string line = how + "\n";
    // Without the file the others wait as long as they have patience.
    [[maybe_unused]] const ssize_t written = write(file_, line.data(), line.size());
  }

 private:
  int file_;
};

pid_t start(const std::vector<std::string>& program, int rank, int ranks, int port, const std::string& job,
            const std::string& ended) {
  std::vector<char*> words;
  for (const std::string& word : program) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t process = fork();
  if (process < 0)
    throw DeviceError(Diagnostic{{}, fmt::format("rank {}: fork: {}", rank, std::strerror(errno)), {}, ""});
  if (process > 0) return process;
  prctl(PR_SET_PDEATHSIG, SIGTERM);  // with the launcher go its ranks
  if (getppid() != parent) _exit(127);
  const auto set = [](const char* name, const std::string& value) { setenv(name, value.c_str(), 1); };
  set("RANK", std::to_string(rank));
  set("LOCAL_RANK", std::to_string(rank));
  set("WORLD_SIZE", std::to_string(ranks));
  set("LOCAL_WORLD_SIZE", std::to_string(ranks));
  set("MASTER_ADDR", "127.0.0.1");
  set("MASTER_PORT", std::to_string(port));
  set("IMBREX_JOB", job);
  set("IMBREX_ENDED_RANKS", ended);
  execvp(words[0], words.data());
  fmt::print(stderr, "imbrex launch: {}: {}\n", words[0], std::strerror(errno));
  _exit(127);
}

/// "rank 1 was killed by signal 9 (Killed)".
std::string how_it_ended(int rank, int status) {
  if (WIFSIGNALED(status))
    return fmt::format("rank {} was killed by signal {} ({})", rank, WTERMSIG(status),
                       strsignal(WTERMSIG(status)));
  return fmt::format("rank {} ended with exit code {}", rank, WEXITSTATUS(status));
}

int launch(const Options& options, const std::vector<std::string>& program) {
  if (program.empty())
    throw LaunchError(
        Diagnostic{{}, "imbrex launch: which program?", {}, "imbrex launch -n 2 -- PROGRAM ARGS"});
  const int port = free_port();
  const std::string job = fmt::format("launch {} {}", getpid(), Clock::now().time_since_epoch().count());
  EndedRanks ended_ranks;
  std::vector<Rank> ranks(static_cast<size_t>(options.ranks));
  for (int rank = 0; rank < options.ranks; ++rank)
    ranks[static_cast<size_t>(rank)] = {start(program, rank, options.ranks, port, job, ended_ranks.path()),
                                        true};
  int running = options.ranks, exit_code = 0;
  Clock::time_point end_them = Clock::time_point::max();
  int with = SIGTERM;
  while (running > 0) {
    int status = 0;
    const pid_t ended = waitpid(-1, &status, WNOHANG);
    if (ended <= 0) {
      if (Clock::now() >= end_them) {
        for (size_t rank = 0; rank < ranks.size(); ++rank) {
          if (!ranks[rank].is_running) continue;
          kill(ranks[rank].process, with);
          if (with == SIGTERM)
            fmt::print(stderr, "imbrex launch: rank {} still ran {:g} s after that (--grace), and is ended\n",
                       rank, options.grace);
          ranks[rank].is_ended_here = true;
        }
        with = SIGKILL;
        end_them = Clock::now() + std::chrono::seconds(2);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      continue;
    }
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      if (ranks[rank].process != ended) continue;
      ranks[rank].is_running = false;
      --running;
      const std::string how = how_it_ended(static_cast<int>(rank), status);
      ended_ranks.add(how);
      if (status == 0 || ranks[rank].is_ended_here) continue;
      fmt::print(stderr, "imbrex launch: {}\n", how);
      if (exit_code != 0) continue;
      exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
      // The others learn of it by themselves, and may have something to say.
      end_them = Clock::now() +
                 std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options.grace));
    }
  }
  return exit_code;
}

}  // namespace

void add_launch(Subcommand& app, Action& chosen, const std::vector<std::string>& program) {
  Subcommand* command = app.add_subcommand(
      "launch", "Start a program once per rank of several GPUs: imbrex launch -n 4 -- PROGRAM ARGS");
  auto options = std::make_shared<Options>();
  command
      ->add_option("-n,--ranks", options->ranks,
                   "processes to start; each is told its rank by RANK, "
                   "WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE")
      ->between(1, 64)
      ->capture_default_str();
  command
      ->add_option("--grace", options->grace,
                   "seconds that the other ranks have to end when one has failed, before they are ended")
      ->between(0.0, 1e6)
      ->capture_default_str();
  command->footer(
      "Programs join by Ranks::from_environment() or imbrex.parallel.join() (docs/parallel.md). Exit code: "
      "that of "
      "the first rank that failed.");
  command->callback([=, &chosen] { chosen = [=] { return launch(*options, program); }; });
}

}  // namespace imbrex::command
