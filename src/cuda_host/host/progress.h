// SPDX-License-Identifier: Apache-2.0
// A line on stderr now and then while a kernel takes long: checked, it runs some hundred thousand times slower than on
// a GPU, and nobody should wonder whether the program hangs.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace imbrex::cuda {

class Progress {
 public:
  Progress(bool is_wanted, const std::string& kernel);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace imbrex::cuda
