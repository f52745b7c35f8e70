// SPDX-License-Identifier: Apache-2.0
// What each rank of processes_test.cpp does, by name. A rank checks its results itself and prints what the test compares.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "imbrex/parallel.h"

namespace imbrex::parallel {

/// What `body` throws; "no error" where it throws nothing.
std::string error_of(const std::function<void()>& body);

/// The file that the test writes when a rank's process of the job has ended.
std::filesystem::path end_note(const std::string& job, int rank);

extern const std::map<std::string, std::function<void(Communicator&)>> rank_bodies;

}  // namespace imbrex::parallel
