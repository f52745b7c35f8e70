// SPDX-License-Identifier: Apache-2.0
// Messages between processes: of one user on one machine, over Unix sockets whose names are in no file system and go with
// the process that listens; of several machines, where the name is "tcp:HOST:PORT", over TCP. Whoever reaches that port is
// trusted, as by NCCL and by torchrun's store.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace imbrex::runtime {

/// An open file, closed with this object.
class FileDescriptor {
 public:
  explicit FileDescriptor(int number = -1) : number_(number) {}
  ~FileDescriptor();
  FileDescriptor(FileDescriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  int number() const { return number_; }
  bool is_open() const { return number_ >= 0; }

 private:
  int number_;
};

using Files = std::vector<std::shared_ptr<const FileDescriptor>>;
using Deadline = std::chrono::steady_clock::time_point;
Deadline deadline_after(double seconds);

/// The other process has closed its end, or has ended.
struct ConnectionLost : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// One end of a connection. One thread sends and one receives at a time.
class Channel {
 public:
  Channel() = default;
  explicit Channel(FileDescriptor socket) : socket_(std::move(socket)) {}

  /// With a message go at most 16 open files, of which the other process gets copies; none by TCP. ConnectionLost.
  void send(std::string_view message, const Files& files = {});
  /// Waits for the next message. ConnectionLost.
  std::string receive(Files* files = nullptr);
  /// Whether there is something to receive, an end of the connection included, before the deadline.
  bool is_ready(Deadline deadline) const;
  /// Whether the other process has closed its end, or is gone. What it has sent before can still be received.
  bool has_ended() const;
  /// Ends the connection: who waits for a message, on either side, gets ConnectionLost.
  void shut_down() noexcept;
  int number() const { return socket_.number(); }
  bool is_open() const { return socket_.is_open(); }

 private:
  FileDescriptor socket_;
};

/// The process that listens under a name. DeviceError where another one does already.
class Listener {
 public:
  explicit Listener(const std::string& name);
  /// The next connection, of a process of this user where it is of this machine; one that is not open where none came in time.
  Channel accept(Deadline deadline);

 private:
  FileDescriptor socket_;
  bool is_local_ = true;
};

/// Connects to who listens under the name, as soon as somebody does; one that is not open where nobody did in time, or
/// `gives_up()` says that nobody will.
Channel connect_to(const std::string& name, Deadline deadline, const std::function<bool()>& gives_up);

}  // namespace imbrex::runtime
