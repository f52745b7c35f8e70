// SPDX-License-Identifier: Apache-2.0
#include "runtime/host/process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "runtime/host/parallel.h"

namespace imbrex::runtime {
namespace {

using testing::HasSubstr;

TEST(Process, OutputAndExitCode) {
  const ProcessResult ran = run_process({"sh", "-c", "echo out; echo err >&2; exit 3"}, 10);
  EXPECT_EQ(ran.exit_code, 3);
  EXPECT_EQ(ran.output, "out\nerr\n");
  EXPECT_FALSE(ran.timed_out);
  EXPECT_EQ(run_process({"sh", "-c", "kill -SEGV $$"}, 10).exit_code, 128 + 11);
  const ProcessResult missing = run_process({"/no/such/program"}, 10);
  EXPECT_EQ(missing.exit_code, 127);
  EXPECT_THAT(missing.output, HasSubstr("No such file"));
}

TEST(Process, IsKilledAfterItsTime) {
  const auto begin = std::chrono::steady_clock::now();
  const ProcessResult ran = run_process({"sleep", "100"}, 0.1);
  EXPECT_TRUE(ran.timed_out);
  EXPECT_EQ(ran.exit_code, 128 + 9);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

TEST(WorkerProcess, AnswersHangsAndDies) {
  using Outcome = WorkerProcess::Outcome;
  const std::string script =
      "while read line; do case $line in hang) sleep 100;; die) kill -ABRT $$;; *) echo $GREETING "
      "$line;; "
      "esac; "
      "done";
  std::string answer;
  auto ask = [&](WorkerProcess& worker, const std::string& line, double timeout_s) {
    worker.send(line);
    return worker.receive(timeout_s, answer);
  };
  WorkerProcess worker({"/bin/sh", "-c", script}, {{"GREETING", "hello"}});
  ASSERT_EQ(ask(worker, "one", 10), Outcome::kAnswered);
  EXPECT_EQ(answer, "hello one");
  ASSERT_EQ(ask(worker, "two\nthree", 10), Outcome::kAnswered);
  EXPECT_EQ(answer, "hello two");
  ASSERT_EQ(worker.receive(10, answer), Outcome::kAnswered);
  EXPECT_EQ(answer, "hello three");
  EXPECT_EQ(ask(worker, "hang", 0.1), Outcome::kTimedOut);
  EXPECT_FALSE(worker.is_alive());
  EXPECT_EQ(ask(worker, "four", 10), Outcome::kDied);
  EXPECT_THAT(worker.how_it_ended(), HasSubstr("signal 9"));
  WorkerProcess other({"/bin/sh", "-c", script}, {});
  EXPECT_EQ(ask(other, "die", 10), Outcome::kDied);
  EXPECT_THAT(other.how_it_ended(), HasSubstr("signal 6"));
  WorkerProcess absent({"/no/such/program"}, {});
  EXPECT_EQ(ask(absent, "x", 10), Outcome::kDied);
  EXPECT_THAT(absent.how_it_ended(), HasSubstr("exit code 127"));
}

TEST(WorkerProcess, SigpipeOfAWorkerThatDoesNotReadReachesNoThread) {
  // Several threads, each with a worker that closes its end: SIGPIPE must reach none of them at any moment.
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([] {
      WorkerProcess worker({"/bin/sh", "-c", "exec 0<&-; echo closed; exec sleep 100"}, {});
      std::string answer;
      EXPECT_EQ(worker.receive(10, answer), WorkerProcess::Outcome::kAnswered);
      for (int i = 0; i < 3000; ++i) worker.send("x");
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(ParallelFor, EveryJobOnceAndTheFirstFailureAtTheEnd) {
  std::vector<std::atomic<int>> seen(100);
  parallel_for(100, 4, [&](size_t i) { ++seen[i]; });
  for (const std::atomic<int>& count : seen) EXPECT_EQ(count, 1);
  std::atomic<int> done = 0;
  EXPECT_THROW(parallel_for(10, 3,
                            [&](size_t i) {
                              ++done;
                              if (i == 2) throw std::runtime_error("two");
                            }),
               std::runtime_error);
  EXPECT_EQ(done, 10);
}

}  // namespace
}  // namespace imbrex::runtime
