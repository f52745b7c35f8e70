// SPDX-License-Identifier: Apache-2.0
#include "runtime/host/channel.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <thread>

#include "imbrex/core/error.h"

namespace imbrex::runtime {

namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kMostFiles = 16;

[[noreturn]] void lost() { throw ConnectionLost(std::strerror(errno)); }

/// The address, and how much of it is used: a name that begins with a zero byte is in no file system.
std::pair<sockaddr_un, socklen_t> address_of(const std::string& name) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const size_t length = std::min(name.size(), sizeof address.sun_path - 1);
  std::memcpy(address.sun_path + 1, name.data(), length);
  return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length)};
}

FileDescriptor new_socket() {
  FileDescriptor made(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!made.is_open())
    throw DeviceError(Diagnostic{{}, fmt::format("socket: {}", std::strerror(errno)), {}, ""});
  return made;
}

/// Waits until the socket can be read (or has ended).
bool wait_readable(int socket, Deadline deadline) {
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count() + 1;
    pollfd poll_for{socket, POLLIN, 0};
    const int ready = poll(&poll_for, 1, static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30)));
    if (ready > 0) return true;
    if (ready == 0 && Clock::now() >= deadline) return false;
    if (ready < 0 && errno != EINTR) return true;  // what is wrong, the next call on it tells
  }
}

/// Whether the process at the other end is: anybody may use a name that is in no file system.
bool is_of_this_user(int socket) {
  ucred who = {};
  socklen_t length = sizeof who;
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &length) == 0 && who.uid == geteuid();
}

}  // namespace

FileDescriptor::~FileDescriptor() {
  if (number_ >= 0) close(number_);
}

Deadline deadline_after(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

void Channel::send(std::string_view message, const Files& files) {
  uint64_t length = message.size();
  iovec parts[2] = {{&length, sizeof length}, {const_cast<char*>(message.data()), message.size()}};
  alignas(cmsghdr) char control[CMSG_SPACE(kMostFiles * sizeof(int))] = {};
  msghdr header = {};
  header.msg_iov = parts;
  header.msg_iovlen = 2;
  if (!files.empty()) {
    if (files.size() > kMostFiles) throw InternalError("more than 16 files with a message");
    header.msg_control = control;
    header.msg_controllen = CMSG_SPACE(files.size() * sizeof(int));
    cmsghdr* const rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(files.size() * sizeof(int));
    for (size_t i = 0; i < files.size(); ++i) {
      const int number = files[i]->number();
      std::memcpy(CMSG_DATA(rights) + i * sizeof(int), &number, sizeof number);
    }
  }
  size_t left = sizeof length + message.size();
  while (left > 0) {
    const ssize_t sent = sendmsg(socket_.number(), &header, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) lost();
    left -= static_cast<size_t>(sent);
    header.msg_control = nullptr;  // files go with the first bytes
    header.msg_controllen = 0;
    auto done = static_cast<size_t>(sent);
    for (iovec& part : parts) {
      const size_t of_part = std::min(done, part.iov_len);
      part.iov_base = static_cast<char*>(part.iov_base) + of_part;
      part.iov_len -= of_part;
      done -= of_part;
    }
  }
}

std::string Channel::receive(Files* files) {
  const auto read_all = [&](void* to, size_t count) {
    for (size_t got = 0; got < count;) {
      iovec part{static_cast<char*>(to) + got, count - got};
      alignas(cmsghdr) char control[CMSG_SPACE(kMostFiles * sizeof(int))];
      msghdr header = {};
      header.msg_iov = &part;
      header.msg_iovlen = 1;
      header.msg_control = control;
      header.msg_controllen = sizeof control;
      const ssize_t received = recvmsg(socket_.number(), &header, MSG_CMSG_CLOEXEC);
      if (received < 0 && errno == EINTR) continue;
      if (received < 0) lost();
      if (received == 0) throw ConnectionLost("the connection was closed");
      got += static_cast<size_t>(received);
      for (cmsghdr* each = CMSG_FIRSTHDR(&header); each != nullptr; each = CMSG_NXTHDR(&header, each)) {
        if (each->cmsg_level != SOL_SOCKET || each->cmsg_type != SCM_RIGHTS) continue;
        for (size_t i = 0; CMSG_LEN((i + 1) * sizeof(int)) <= each->cmsg_len; ++i) {
          int number = -1;
          std::memcpy(&number, CMSG_DATA(each) + i * sizeof(int), sizeof number);
          auto file = std::make_shared<const FileDescriptor>(number);
          if (files != nullptr) files->push_back(std::move(file));
        }
      }
    }
  };
  uint64_t length = 0;
  read_all(&length, sizeof length);
  std::string message(length, '\0');
  read_all(message.data(), message.size());
  return message;
}

bool Channel::is_ready(Deadline deadline) const { return wait_readable(socket_.number(), deadline); }

void Channel::shut_down() noexcept {
  if (socket_.is_open()) shutdown(socket_.number(), SHUT_RDWR);
}

Listener::Listener(const std::string& name) : socket_(new_socket()) {
  const auto [address, length] = address_of(name);
  if (bind(socket_.number(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      listen(socket_.number(), 64) != 0)
    throw DeviceError(
        Diagnostic{{},
                   fmt::format("ranks cannot meet under the name '{}': {}", name,
                               errno == EADDRINUSE ? "another process does already" : std::strerror(errno)),
                   {},
                   "two programs at once need names of their own: set IMBREX_JOB, or another "
                   "MASTER_PORT, for one of them"});
}

Channel Listener::accept(Deadline deadline) {
  while (wait_readable(socket_.number(), deadline)) {
    FileDescriptor made(accept4(socket_.number(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!made.is_open()) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      throw DeviceError(Diagnostic{{}, fmt::format("accept: {}", std::strerror(errno)), {}, ""});
    }
    if (is_of_this_user(made.number())) return Channel(std::move(made));
  }
  return {};
}

Channel connect_to(const std::string& name, Deadline deadline) {
  const auto [address, length] = address_of(name);
  for (;;) {
    FileDescriptor made = new_socket();
    if (connect(made.number(), reinterpret_cast<const sockaddr*>(&address), length) == 0 &&
        is_of_this_user(made.number()))
      return Channel(std::move(made));
    if (Clock::now() >= deadline) return {};
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

}  // namespace imbrex::runtime
