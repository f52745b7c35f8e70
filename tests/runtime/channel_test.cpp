// SPDX-License-Identifier: Apache-2.0
#include "runtime/host/channel.h"

#include <gtest/gtest.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <thread>

#include "../skip.h"

namespace imbrex::runtime {
namespace {

/// A network of this process alone, in which sockets that connect get port 40000. False where the machine does not let it.
bool enter_network_of_one_port() {
  if (unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return false;
  const FileDescriptor any(socket(AF_INET, SOCK_DGRAM, 0));
  ifreq loopback = {};
  std::strcpy(loopback.ifr_name, "lo");
  loopback.ifr_flags = IFF_UP;
  if (ioctl(any.number(), SIOCSIFFLAGS, &loopback) != 0) return false;
  std::ofstream range("/proc/sys/net/ipv4/ip_local_port_range");
  return static_cast<bool>(range << "40000 40000" << std::flush);
}

// TCP lets a socket connect to itself where it got the port that it asks for, as it does now and then where nobody listens.
TEST(Channel, IsNotToItself) {
  enum : int { kNobody, kItself, kNotAllowed };
  const pid_t child = fork();
  if (child == 0) {
    if (!enter_network_of_one_port()) _exit(kNotAllowed);
    _exit(connect_to("tcp:127.0.0.1:40000", deadline_after(0.1), [] { return false; }).is_open() ? kItself
                                                                                                 : kNobody);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << status;
  if (WEXITSTATUS(status) == kNotAllowed) IMBREX_SKIP(network_namespaces);
  EXPECT_EQ(WEXITSTATUS(status), kNobody);
}

TEST(Channel, WaitsForWhoListensLater) {
  const std::string name = "channel test " + std::to_string(getpid());
  std::thread late([&] {
    Listener listener(name);
    Channel other = listener.accept(deadline_after(60));
    other.send("hello");
    EXPECT_EQ(other.receive(), "and goodbye");
  });
  Channel channel = connect_to(name, deadline_after(60), [] { return false; });
  ASSERT_TRUE(channel.is_open());
  EXPECT_EQ(channel.receive(), "hello");
  channel.send("and goodbye");
  late.join();
}

}  // namespace
}  // namespace imbrex::runtime
