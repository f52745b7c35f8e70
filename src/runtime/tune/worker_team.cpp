// SPDX-License-Identifier: Apache-2.0
#include "runtime/tune/worker_team.h"

#include <fmt/format.h>

#include <utility>

#include "imbrex/core/error.h"

namespace imbrex::runtime {

WorkerTeam::WorkerTeam(size_t members, Open open) : open_(std::move(open)), workers_(members) {
  for (size_t member = 1; member < members; ++member)
    threads_.emplace_back([this, member] { serve(member); });
}

WorkerTeam::~WorkerTeam() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  begins_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WorkerTeam::run(size_t members, const std::function<void(size_t)>& body) {
  {
    const std::lock_guard lock(mutex_);
    body_ = &body;
    active_ = running_ = members;
    failure_ = nullptr;
    ++calls_;
  }
  begins_.notify_all();
  call(0);
  std::unique_lock lock(mutex_);
  ends_.wait(lock, [&] { return running_ == 0; });
  if (failure_) std::rethrow_exception(failure_);
}

void WorkerTeam::serve(size_t member) {
  size_t seen = 0;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      begins_.wait(lock, [&] { return is_over_ || calls_ != seen; });
      if (is_over_) return;
      seen = calls_;
      if (member >= active_) continue;
    }
    call(member);
  }
}

void WorkerTeam::call(size_t member) {
  std::exception_ptr failure;
  try {
    (*body_)(member);
  } catch (...) {
    failure = std::current_exception();
  }
  const std::lock_guard lock(mutex_);
  if (failure_ == nullptr) failure_ = failure;
  if (--running_ == 0) ends_.notify_one();
}

void WorkerTeam::start(size_t member) {
  std::string ignored;
  if (workers_[member] == nullptr) workers_[member] = open_(member, ignored);
}

WorkerClient& WorkerTeam::worker(size_t member) {
  std::unique_ptr<WorkerClient>& worker = workers_[member];
  if (worker == nullptr || !worker->is_alive()) {
    std::string why_not;
    worker = open_(member, why_not);
    if (worker == nullptr)
      throw DeviceError(Diagnostic{
          {},
          workers_.size() == 1 ? "tuning: " + why_not : fmt::format("tuning, worker {}: {}", member, why_not),
          {},
          ""});
  }
  return *worker;
}

}  // namespace imbrex::runtime
