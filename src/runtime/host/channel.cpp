// SPDX-License-Identifier: Apache-2.0
#include "runtime/host/channel.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/tcp.h>
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

/// Where a name leads; `why_not` where to nowhere.
struct Address {
  sockaddr_storage bytes = {};
  socklen_t length = 0;
  std::string why_not;
  bool is_local() const { return bytes.ss_family == AF_UNIX; }
};

constexpr std::string_view kTcp = "tcp:";

Address address_of(const std::string& name) {
  Address address;
  if (!name.starts_with(kTcp)) {
    // A name that begins with a zero byte is in no file system.
    auto& local = reinterpret_cast<sockaddr_un&>(address.bytes);
    local.sun_family = AF_UNIX;
    const size_t length = std::min(name.size(), sizeof local.sun_path - 1);
    std::memcpy(local.sun_path + 1, name.data(), length);
    address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
    return address;
  }
  const size_t colon = name.rfind(':');
  std::string host = name.substr(kTcp.size(), std::max(colon, kTcp.size()) - kTcp.size());
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), name.c_str() + colon + 1, &hints, &found); error != 0) {
    address.why_not = gai_strerror(error);
    return address;
  }
  std::memcpy(&address.bytes, found->ai_addr, found->ai_addrlen);
  address.length = found->ai_addrlen;
  freeaddrinfo(found);
  return address;
}

FileDescriptor new_socket(const Address& address) {
  FileDescriptor made(socket(address.bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!made.is_open())
    throw DeviceError(Diagnostic{{}, fmt::format("socket: {}", std::strerror(errno)), {}, ""});
  return made;
}

/// Of TCP: messages go at once, and a server that is gone without a word is noticed within a quarter of a minute.
void set_options(int socket, bool is_local) {
  if (is_local) return;
  const auto set = [&](int level, int option, int value) {
    setsockopt(socket, level, option, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 5);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 3);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, 15000);
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

/// TCP connects a socket to itself where it was given, by chance, the very port that it asks for and nobody listens there.
bool is_to_itself(int socket) {
  sockaddr_storage mine = {}, other = {};
  socklen_t length = sizeof mine, other_length = sizeof other;
  return getsockname(socket, reinterpret_cast<sockaddr*>(&mine), &length) == 0 &&
         getpeername(socket, reinterpret_cast<sockaddr*>(&other), &other_length) == 0 &&
         length == other_length && std::memcmp(&mine, &other, length) == 0;
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

bool Channel::has_ended() const {
  pollfd poll_for{socket_.number(), POLLRDHUP, 0};
  return poll(&poll_for, 1, 0) > 0;
}

void Channel::shut_down() noexcept {
  if (socket_.is_open()) shutdown(socket_.number(), SHUT_RDWR);
}

Listener::Listener(const std::string& name) {
  const Address address = address_of(name);
  const auto fail = [&](const std::string& why) {
    throw DeviceError(Diagnostic{{},
                                 fmt::format("ranks cannot meet under the name '{}': {}", name, why),
                                 {},
                                 "two programs at once need names of their own: set IMBREX_JOB, or another "
                                 "MASTER_PORT, for one of them"});
  };
  if (!address.why_not.empty()) fail(address.why_not);
  is_local_ = address.is_local();
  socket_ = new_socket(address);
  const int again = 1;  // a port that an earlier job has just left
  setsockopt(socket_.number(), SOL_SOCKET, SO_REUSEADDR, &again, sizeof again);
  if (bind(socket_.number(), reinterpret_cast<const sockaddr*>(&address.bytes), address.length) != 0 ||
      listen(socket_.number(), 64) != 0)
    fail(errno == EADDRINUSE ? "another process does already" : std::strerror(errno));
}

Channel Listener::accept(Deadline deadline) {
  while (wait_readable(socket_.number(), deadline)) {
    FileDescriptor made(accept4(socket_.number(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!made.is_open()) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      throw DeviceError(Diagnostic{{}, fmt::format("accept: {}", std::strerror(errno)), {}, ""});
    }
    if (is_local_ && !is_of_this_user(made.number())) continue;
    set_options(made.number(), is_local_);
    return Channel(std::move(made));
  }
  return {};
}

Channel connect_to(const std::string& name, Deadline deadline, const std::function<bool()>& gives_up) {
  for (;;) {
    // Looked up again each time: the server of rank 0 may get its name late.
    const Address address = address_of(name);
    if (address.why_not.empty()) {
      FileDescriptor made = new_socket(address);
      if (connect(made.number(), reinterpret_cast<const sockaddr*>(&address.bytes), address.length) == 0 &&
          (address.is_local() ? is_of_this_user(made.number()) : !is_to_itself(made.number()))) {
        set_options(made.number(), address.is_local());
        return Channel(std::move(made));
      }
    }
    if (Clock::now() >= deadline || gives_up()) return {};
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

}  // namespace imbrex::runtime
