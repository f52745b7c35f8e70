// SPDX-License-Identifier: Apache-2.0
// The lines between the tuner and its worker: each is read back as it was meant, and nonsense is none.
#include "runtime/tune/worker_protocol.h"

#include <gtest/gtest.h>

namespace imbrex::runtime {
namespace {

TEST(WorkerProtocol, RequestsAreReadBack) {
  const WorkerRequest open{.kind = WorkerRequest::Kind::kOpen,
                           .problem = {.kernel = "softmax",
                                       .device = "virtual",
                                       .ordinal = 2,
                                       .target = "sm_80",
                                       .gpu = "a10",
                                       .sizes = {{"n", 7}},
                                       .seed = 3}};
  const auto opened = parse_request(to_line(open));
  ASSERT_TRUE(opened);
  EXPECT_EQ(opened->kind, WorkerRequest::Kind::kOpen);
  EXPECT_EQ(opened->problem.kernel, "softmax");
  EXPECT_EQ(opened->problem.device, "virtual");
  EXPECT_EQ(opened->problem.ordinal, 2);
  EXPECT_EQ(opened->problem.target, "sm_80");
  EXPECT_EQ(opened->problem.gpu, "a10");
  EXPECT_EQ(opened->problem.sizes, (std::map<std::string, int64_t>{{"n", 7}}));
  EXPECT_EQ(opened->problem.seed, 3u);

  const WorkerRequest attempt{
      .config = "a=1", .verify = false, .restore_inputs = true, .launches = 9, .limit_us = 1.5};
  const auto tried = parse_request(to_line(attempt));
  ASSERT_TRUE(tried);
  EXPECT_EQ(tried->kind, WorkerRequest::Kind::kTry);
  EXPECT_EQ(tried->config, "a=1");
  EXPECT_FALSE(tried->verify);
  EXPECT_TRUE(tried->restore_inputs);
  EXPECT_EQ(tried->launches, 9);
  EXPECT_EQ(tried->limit_us, 1.5);

  const auto assembled =
      parse_request(to_line(WorkerRequest{.kind = WorkerRequest::Kind::kAssemble, .config = "b=2"}));
  ASSERT_TRUE(assembled);
  EXPECT_EQ(assembled->kind, WorkerRequest::Kind::kAssemble);
  EXPECT_EQ(assembled->config, "b=2");
}

TEST(WorkerProtocol, AnswersAreReadBack) {
  using Kind = WorkerAnswer::Kind;
  using Status = Candidate::Status;
  EXPECT_EQ(parse_answer(to_line(WorkerAnswer{}))->kind, Kind::kOpened);
  EXPECT_EQ(parse_answer(to_line(WorkerAnswer{.kind = Kind::kError, .error = "no GPU"}))->error, "no GPU");
  const WorkerAnswer stage{.kind = Kind::kStage, .stage = WorkerAnswer::Stage::kMeasuring};
  EXPECT_EQ(parse_answer(to_line(stage))->stage, WorkerAnswer::Stage::kMeasuring);
  for (const Status status :
       {Status::kDropped, Status::kWrong, Status::kFailed, Status::kTrapped, Status::kSlow}) {
    const WorkerAnswer answer{
        .kind = Kind::kVerdict,
        .verdict = {.status = status, .reason = "because", .times = {1, 2.5}, .spill_bytes = 16}};
    const auto read = parse_answer(to_line(answer));
    ASSERT_TRUE(read);
    EXPECT_EQ(read->kind, Kind::kVerdict);
    EXPECT_EQ(read->verdict.status, status);
    EXPECT_EQ(read->verdict.reason, "because");
    EXPECT_EQ(read->verdict.times, (std::vector<double>{1, 2.5}));
    EXPECT_EQ(read->verdict.spill_bytes, 16);
  }
}

TEST(WorkerProtocol, OtherLinesAreNone) {
  for (const char* line :
       {"", "nonsense", "[]", "3", R"({"do": "dance"})", R"({"do": "try"})", R"({"do": 1})"})
    EXPECT_FALSE(parse_request(line)) << line;
  for (const char* line : {"", "nonsense", "[]", R"({"stage": "sleeping"})", R"({"status": "fine"})"})
    EXPECT_FALSE(parse_answer(line)) << line;
}

}  // namespace
}  // namespace imbrex::runtime
