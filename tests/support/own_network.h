// A network namespace with a loopback for this process alone, with all its ports or only a few.
#pragma once

#include <gtest/gtest.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "transport/base/file_descriptor.h"

namespace pacecar::test {

inline constexpr uint16_t kOnlyLocalPort = 40000;

// False: not permitted, or there is no such interface.
inline bool set_link(const char* interface, bool up) {
  const FileDescriptor any(socket(AF_INET, SOCK_DGRAM, 0));
  ifreq link{};
  std::strncpy(link.ifr_name, interface, sizeof link.ifr_name - 1);
  link.ifr_flags = up ? IFF_UP : 0;
  return ioctl(any.get(), SIOCSIFFLAGS, &link) == 0;
}

// Moves this process, which must have one thread, to a network of its own. False: not permitted.
inline bool enter_own_network() {
  return unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0 && set_link("lo", true);
}

// As enter_own_network(); programs that this process starts may change the network, too.
inline bool enter_own_network_as_root() {
  const uid_t user = getuid();
  if (!enter_own_network()) return false;
  std::ofstream map("/proc/self/uid_map");
  map << "0 " << user << " 1" << std::flush;
  return map.good();
}

// As enter_own_network, with one ephemeral port: a process that connects to that port, while nobody
// listens, is connected to itself.
inline bool enter_network_with_one_local_port() {
  if (!enter_own_network()) return false;
  std::ofstream range("/proc/sys/net/ipv4/ip_local_port_range");
  range << kOnlyLocalPort << ' ' << kOnlyLocalPort << std::flush;
  return range.good();
}

// Prints the failures of this test, as GoogleTest does not in a death test. Says whether any is.
inline bool say_failures() {
  const testing::TestResult& result =
      *testing::UnitTest::GetInstance()->current_test_info()->result();
  for (int i = 0; i < result.total_part_count(); ++i) {
    const testing::TestPartResult& part = result.GetTestPartResult(i);
    if (part.failed()) std::fprintf(stderr, "%s\n", part.message());
  }
  return result.Failed();
}

// Runs `body` in a child process in the network of enter(), if this host allows one.
template <typename Body>
void in_network(bool (*enter)(), Body body) {
  constexpr int kNotAllowed = 77;
  const auto child = [&] {
    if (!enter()) std::_Exit(kNotAllowed);
    body();
    std::_Exit(say_failures() ? 1 : 0);
  };
  bool allowed = true;
  EXPECT_EXIT(
      child(),
      [&](int status) {
        allowed = !testing::ExitedWithCode(kNotAllowed)(status);
        return !allowed || testing::ExitedWithCode(0)(status);
      },
      "");
  if (!allowed) GTEST_SKIP() << "this host allows no network of our own: run as root";
}

}  // namespace pacecar::test
