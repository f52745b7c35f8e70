// SPDX-License-Identifier: Apache-2.0
#include "runtime/parallel/meeting.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "imbrex/core/error.h"

namespace imbrex::runtime {

namespace {

constexpr const char* kSameCalls = "every rank makes the same calls of the communicator, in the same order";

}  // namespace

Meeting::Meeting(int ranks, std::shared_ptr<vgpu::VirtualNode> node, double patience)
    : seats_(static_cast<size_t>(ranks)), node_(std::move(node)), patience_(patience) {}

std::string Meeting::text_of(int rank) const {
  const Seat& seat = seats_[static_cast<size_t>(rank)];
  if (!seat.why_ended.empty()) return fmt::format("rank {} has ended: {}", rank, seat.why_ended);
  const std::string line =
      seat.where.is_known() ? fmt::format(" at {}:{}", seat.where.file, seat.where.line) : "";
  switch (seat.at) {
    case At::kMeeting:
      return fmt::format("rank {} has come to {}{}", rank, seat.call, line);
    case At::kLaunch:
      return fmt::format("rank {} has launched a kernel", rank);
    case At::kEnd:
      return fmt::format("rank {} has ended", rank);
    case At::kHostProgram:
      break;
  }
  return fmt::format("rank {} is in its host program", rank);
}

void Meeting::refuse(SourceLocation where) const {
  throw DeviceError(Diagnostic{where, broken_, facts_, help_});
}

void Meeting::break_up(std::string why, std::string help) {
  if (!broken_.empty()) return;
  broken_ = std::move(why);
  help_ = std::move(help);
  // As the ranks stand now: each leaves its place when it is told.
  for (size_t rank = 0; rank < seats_.size(); ++rank) facts_.push_back(text_of(static_cast<int>(rank)));
}

void Meeting::advance() {
  if (!broken_.empty()) return;
  const auto any = [&](At at) {
    return std::any_of(seats_.begin(), seats_.end(), [&](const Seat& seat) { return seat.at == at; });
  };
  if (any(At::kHostProgram)) return;
  if (any(At::kLaunch)) return run_launches();
  const auto met =
      std::find_if(seats_.begin(), seats_.end(), [](const Seat& seat) { return seat.at == At::kMeeting; });
  if (met == seats_.end()) return;
  for (size_t rank = 0; rank < seats_.size(); ++rank) {
    if (seats_[rank].at == At::kEnd)
      return break_up(fmt::format("rank {} has ended and does not come to {}", rank, met->call), kSameCalls);
    if (seats_[rank].call != met->call)
      return break_up(fmt::format("ranks call different things: rank {} calls {}, rank {} calls {}",
                                  met - seats_.begin(), met->call, rank, seats_[rank].call),
                      kSameCalls);
  }
  const bool is_barrier = met->call == kBarrier;
  auto all = std::make_shared<std::vector<Brought>>();
  for (Seat& seat : seats_) all->push_back(std::move(seat.brought));
  if (is_barrier && node_ != nullptr) node_->barrier();
  for (Seat& seat : seats_) {
    seat.all = all;
    seat.at = At::kHostProgram;
  }
}

void Meeting::run_launches() {
  std::vector<vgpu::VirtualNode::RankLaunch> launches;
  std::vector<Seat*> launched;
  for (size_t rank = 0; rank < seats_.size(); ++rank) {
    Seat& seat = seats_[rank];
    if (seat.at != At::kLaunch) continue;
    launches.push_back({static_cast<int>(rank), *seat.function, *seat.launch});
    launched.push_back(&seat);
  }
  try {
    std::vector<vgpu::Report> reports = node_->launch(launches);
    tell_all(reports);
    for (size_t i = 0; i < launched.size(); ++i) launched[i]->report = std::move(reports[i]);
  } catch (...) {
    for (Seat* seat : launched) seat->failure = std::current_exception();
  }
  for (Seat* seat : launched) seat->at = At::kHostProgram;
}

void Meeting::tell_all(std::vector<vgpu::Report>& reports) const {
  std::vector<vgpu::Finding> told;
  for (vgpu::Report& report : reports) {
    // Who waits in vain may wait for a rank that has launched nothing.
    for (vgpu::Finding& finding : report.findings)
      if (finding.kind == vgpu::FindingKind::kEndlessRun || finding.kind == vgpu::FindingKind::kDeadlock)
        for (size_t rank = 0; rank < seats_.size(); ++rank)
          if (seats_[rank].at != At::kLaunch) finding.facts.push_back(text_of(static_cast<int>(rank)));
    if (told.empty() && !report.completed) told = report.findings;
  }
  for (vgpu::Report& report : reports)
    if (!report.completed && report.findings.empty()) report.findings = told;
}

void Meeting::wait(std::unique_lock<std::mutex>& lock, int rank, const char* what) {
  Seat& seat = seats_[static_cast<size_t>(rank)];
  changed_.notify_all();
  const auto is_over = [&] { return seat.at == At::kHostProgram || !broken_.empty(); };
  if (!changed_.wait_for(lock, std::chrono::duration<double>(patience_), is_over)) {
    std::string missing;
    for (size_t other = 0; other < seats_.size(); ++other)
      if (seats_[other].at == At::kHostProgram)
        missing += fmt::format("{}{}", missing.empty() ? "rank " : ", ", other);
    break_up(fmt::format("{} has not come within {:g} s, while rank {} waits for {}", missing, patience_,
                         rank, what),
             kSameCalls);
    changed_.notify_all();
  }
  if (seat.at == At::kHostProgram) return;
  seat.at = At::kHostProgram;
  refuse(seat.where);
}

std::vector<Brought> Meeting::meet(int rank, const std::string& call, Brought brought, SourceLocation where) {
  std::unique_lock lock(mutex_);
  Seat& seat = seats_[static_cast<size_t>(rank)];
  seat.where = where;
  if (!broken_.empty()) refuse(where);
  seat.at = At::kMeeting;
  seat.call = call;
  seat.brought = std::move(brought);
  advance();
  wait(lock, rank, call.c_str());
  return *seat.all;
}

vgpu::Report Meeting::launch(int rank, const vgpu::Function& function, const vgpu::Launch& launch) {
  std::unique_lock lock(mutex_);
  Seat& seat = seats_[static_cast<size_t>(rank)];
  seat.where = launch.where;
  if (!broken_.empty()) refuse(launch.where);
  seat.at = At::kLaunch;
  seat.function = &function;
  seat.launch = &launch;
  seat.report.reset();
  seat.failure = nullptr;
  advance();
  wait(lock, rank, "its kernel");
  if (seat.failure != nullptr) std::rethrow_exception(seat.failure);
  return std::move(*seat.report);
}

std::vector<std::string> Meeting::others(int rank) {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> texts;
  for (int other = 0; other < static_cast<int>(seats_.size()); ++other)
    if (other != rank) texts.push_back(text_of(other));
  return texts;
}

void Meeting::end(int rank, const std::string& why) {
  const std::lock_guard lock(mutex_);
  Seat& seat = seats_[static_cast<size_t>(rank)];
  seat.at = At::kEnd;
  seat.why_ended = why;
  advance();
  changed_.notify_all();
}

void Meeting::lose(int rank, const std::string& why) {
  const std::lock_guard lock(mutex_);
  seats_[static_cast<size_t>(rank)].why_ended = why;
  break_up(fmt::format("rank {} is gone: {}", rank, why), "look at what this rank printed");
  changed_.notify_all();
}

}  // namespace imbrex::runtime
