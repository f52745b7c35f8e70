// SPDX-License-Identifier: Apache-2.0
#include "runtime/host/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "imbrex/core/error.h"

extern char** environ;

namespace imbrex::runtime {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> result;
  for (const std::string& word : words) result.push_back(const_cast<char*>(word.c_str()));
  result.push_back(nullptr);
  return result;
}

/// Milliseconds until `end`, at least 0, for poll().
int milliseconds_until(Clock::time_point end) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left + 1, 0, 1 << 30));
}

Clock::time_point after(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

int wait_for(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

/// While it lives, a write() of this thread to a worker that died fails with EPIPE; the signal would end us.
/// By the thread's mask, because what a signal does is set for the whole process and others write to workers
/// of their own.
class WithoutSigpipe {
 public:
  WithoutSigpipe() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~WithoutSigpipe() {
    const timespec at_once = {};
    while (sigtimedwait(&pipe_, nullptr, &at_once) < 0 && errno == EINTR) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  WithoutSigpipe(const WithoutSigpipe&) = delete;
  WithoutSigpipe& operator=(const WithoutSigpipe&) = delete;

 private:
  sigset_t pipe_, before_;
};

int exit_code(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

}  // namespace

ProcessResult run_process(const std::vector<std::string>& argv, double timeout_s) {
  ProcessResult result;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return {127, false, std::strerror(errno)};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
  pid_t pid = -1;
  const int failure = posix_spawnp(&pid, argv[0].c_str(), &actions, nullptr, pointers(argv).data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (failure != 0) {
    close(ends[0]);
    return {127, false, fmt::format("{}: {}", argv[0], std::strerror(failure))};
  }
  const Clock::time_point end = after(timeout_s);
  char buffer[16 << 10];
  for (;;) {
    pollfd wait{ends[0], POLLIN, 0};
    const int ready = poll(&wait, 1, milliseconds_until(end));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) {
      result.timed_out = true;
      kill(pid, SIGKILL);
      break;
    }
    const ssize_t got = read(ends[0], buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    result.output.append(buffer, static_cast<size_t>(got));
  }
  close(ends[0]);
  result.exit_code = exit_code(wait_for(pid));
  return result;
}

WorkerProcess::WorkerProcess(const std::vector<std::string>& argv,
                             const std::vector<std::pair<std::string, std::string>>& environment) {
  int down[2], up[2];
  if (pipe2(down, O_CLOEXEC) != 0 || pipe2(up, O_CLOEXEC) != 0)
    throw DeviceError(Diagnostic{{}, fmt::format("worker process: {}", std::strerror(errno)), {}, ""});
  std::vector<std::string> variables;
  for (char** each = environ; *each != nullptr; ++each) {
    const std::string_view text = *each;
    const bool is_replaced = std::any_of(environment.begin(), environment.end(), [&](const auto& pair) {
      return text.starts_with(pair.first + "=");
    });
    if (!is_replaced) variables.emplace_back(text);
  }
  for (const auto& [name, value] : environment) variables.push_back(name + "=" + value);
  const std::vector<char*> words = pointers(argv), environ_words = pointers(variables);
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0) {  // only calls that are safe after fork() in a program with threads
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setpgid(0, 0);
    if (getppid() != parent) _exit(127);
    dup2(down[0], 0);
    dup2(up[1], 1);
    execve(words[0], words.data(), environ_words.data());
    _exit(127);
  }
  close(down[0]);
  close(up[1]);
  to_ = down[1], from_ = up[0];
  if (pid_ < 0) throw DeviceError(Diagnostic{{}, "worker process: fork failed", {}, ""});
  setpgid(pid_, pid_);  // so that its group is there whoever of the two is first
}

WorkerProcess::~WorkerProcess() {
  kill();
  close(to_);
  close(from_);
}

void WorkerProcess::kill() {
  if (pid_ <= 0) return;
  ::kill(-pid_, SIGKILL);  // with what it has started
  note_end(wait_for(pid_));
}

void WorkerProcess::note_end(int status) {
  pid_ = -1;
  if (WIFEXITED(status))
    how_it_ended_ = fmt::format("ended with exit code {}", WEXITSTATUS(status));
  else
    how_it_ended_ = fmt::format("killed by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
}

void WorkerProcess::send(const std::string& line) {
  if (!is_alive()) return;
  const std::string text = line + "\n";
  const WithoutSigpipe guard;
  for (size_t sent = 0; sent < text.size();) {
    const ssize_t written = write(to_, text.data() + sent, text.size() - sent);
    if (written < 0 && errno != EINTR) break;
    if (written > 0) sent += static_cast<size_t>(written);
  }
}

WorkerProcess::Outcome WorkerProcess::receive(double timeout_s, std::string& line) {
  if (!is_alive()) return Outcome::kDied;
  const Clock::time_point end = after(timeout_s);
  char buffer[16 << 10];
  for (;;) {
    if (const size_t newline = pending_.find('\n'); newline != std::string::npos) {
      line = pending_.substr(0, newline);
      pending_.erase(0, newline + 1);
      return Outcome::kAnswered;
    }
    pollfd wait{from_, POLLIN, 0};
    const int ready = poll(&wait, 1, milliseconds_until(end));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) {
      kill();
      return Outcome::kTimedOut;
    }
    const ssize_t got = read(from_, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      note_end(wait_for(pid_));
      return Outcome::kDied;
    }
    pending_.append(buffer, static_cast<size_t>(got));
  }
}

}  // namespace imbrex::runtime
