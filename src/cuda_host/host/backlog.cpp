// SPDX-License-Identifier: Apache-2.0
#include "cuda_host/host/backlog.h"

#include <chrono>
#include <string_view>
#include <thread>
#include <utility>

#include "cuda_host/host/host.h"

namespace imbrex::cuda {
namespace {

thread_local bool t_is_host_function = false;

}  // namespace

Backlog::Number Backlog::add(std::function<void()> step) {
  const std::lock_guard lock(mutex_);
  steps_.push_back(std::move(step));
  if (!is_running_) {
    is_running_ = true;
    std::thread([this] { run(); }).detach();
  }
  changed_.notify_all();
  return ++added_;
}

void Backlog::wait_for(Number number) {
  if (has_passed(number)) return;
  const ProgramsTurn turn;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return has_passed(number); });
}

void Backlog::stop() {
  const std::lock_guard lock(mutex_);
  stops_ = true;
  changed_.notify_all();
}

/// The thread ends soon where there is nothing to do, so that it is none of those that a hanging program is judged by.
void Backlog::run() {
  constexpr auto kPatience = std::chrono::milliseconds(200);
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, kPatience, [&] { return !steps_.empty() || stops_; });
      if (steps_.empty() || stops_) {
        is_running_ = false;
        return;
      }
    }
    const std::lock_guard call(Host::mutex());
    const NotedCall noted(nullptr);
    std::function<void()> step;
    {
      const std::lock_guard lock(mutex_);
      if (stops_) continue;
      step = std::move(steps_.front());
      steps_.pop_front();
    }
    step();
    step = nullptr;  // what it kept alive goes before anybody is told that it is done
    {
      const std::lock_guard lock(mutex_);
      ++passed_;
    }
    changed_.notify_all();
  }
}

HostFunctionScope::HostFunctionScope() { t_is_host_function = true; }
HostFunctionScope::~HostFunctionScope() { t_is_host_function = false; }

void expect_no_host_function(const char* call) {
  if (!t_is_host_function) return;
  const std::string_view name = call;
  if (name.find("Get") != std::string_view::npos) return;
  // By which a runtime finds its context again in a thread that is new to it.
  for (const char* word : {"cuInit", "cuCtxSetCurrent", "cuDevicePrimaryCtxRetain", "storage of contexts"})
    if (name == word) return;
  refuse(CUDA_ERROR_NOT_PERMITTED,
         "a host function of a stream may make no CUDA calls\n"
         "  help: let it wake a thread of yours, which makes them");
}

}  // namespace imbrex::cuda
