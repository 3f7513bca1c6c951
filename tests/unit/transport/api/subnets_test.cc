// Which NICs join two hosts, each in a network of its own: by a common subnet, by a route, or not.
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>

#include "tests/support/joining_process.h"
#include "tests/support/own_network.h"

namespace pacecar::test::subnets_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr size_t kRouted = 0;
constexpr size_t kNear = 1;

void run(const std::string& command) { PACECAR_CHECK(std::system(command.c_str()) == 0); }

// Host 1 and host 2. Their NICs "routed" have the subnets 10.1.0.0/24 and 10.2.0.0/24 and routes to
// each other; their NICs "near" have one subnet.
class TwoHosts {
 public:
  TwoHosts() {
    hosts_[0] = network();
    PACECAR_CHECK(unshare(CLONE_NEWNET) == 0);
    hosts_[1] = network();
    for (const char* const nic : {"routed", "near"}) {
      run(fmt::format("ip link add {0} type veth peer {0} netns /proc/{1}/fd/{2}", nic, getpid(),
                      hosts_[0].get()));
    }
    for (const int host : {1, 2}) {
      enter(host);
      for (const char* const nic : {"lo", "routed", "near"}) {
        run(fmt::format("ip link set {} up", nic));
      }
      run(fmt::format("ip address add 10.{0}.0.{0}/24 dev routed", host));
      run(fmt::format("ip address add 10.3.0.{}/24 dev near", host));
      run(fmt::format("ip route add 10.{}.0.0/24 dev routed", 3 - host));
    }
  }
  void enter(int host) const {
    PACECAR_CHECK(setns(hosts_[static_cast<size_t>(host - 1)].get(), CLONE_NEWNET) == 0);
  }

 private:
  static FileDescriptor network() {
    return FileDescriptor(open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
  }

  std::array<FileDescriptor, 2> hosts_;
};

struct Speeds {
  uint64_t routed = 0;
  uint64_t near = 0;
};

// The device of the connection from host 1 to host 2; "routed" is the requested one of both.
Result<size_t> join(const TwoHosts& hosts, const std::vector<std::string>& nics, Speeds speeds = {},
                    bool puts = false) {
  hosts.enter(2);
  Process to(std::vector<std::vector<Networks>>{});
  for (const std::string& nic : nics) to.add(nic);
  const auto listener = to.context().listen(0).value();
  hosts.enter(1);
  Process from(std::vector<std::vector<Networks>>{});
  for (const std::string& nic : nics) from.add(nic);
  from.info(kRouted).speed_mbps = speeds.routed;
  if (nics.size() > 1) from.info(kNear).speed_mbps = speeds.near;
  from.bound_connecting(Duration::from_s(3600));
  const auto connecting = from.context().connect(0, listener->handle(), {.puts = puts});
  if (!connecting) return tl::unexpected(connecting.error());
  const auto ends = finish(**connecting, *listener);
  if (!ends) return tl::unexpected(ends.error());
  EXPECT_EQ(ends->send->nic(), ends->receive->nic());
  return ends->send->nic();
}

TEST(Subnets, OfBothHostsGoBeforeRoutesButThoseOfFasterNicsAndPuts) {
  in_network(enter_own_network_as_root, [] {
    const TwoHosts hosts;
    const auto chosen = [&](Speeds speeds, bool puts = false) {
      return join(hosts, {"routed", "near"}, speeds, puts).value();
    };
    EXPECT_EQ(chosen({.routed = 0, .near = 0}), kNear);
    EXPECT_EQ(chosen({.routed = 10'000, .near = 10'000}), kNear);
    EXPECT_EQ(chosen({.routed = 10'000, .near = 25'000}), kNear);
    EXPECT_EQ(chosen({.routed = 10'000, .near = 1'000}), kRouted);
    EXPECT_EQ(chosen({.routed = 10'000, .near = 0}), kRouted) << "perhaps a bridge";
    EXPECT_EQ(chosen({.routed = 0, .near = 0}, /*puts=*/true), kRouted);
    hosts.enter(1);
    run("ip route del 10.2.0.0/24");
    EXPECT_EQ(chosen({.routed = 10'000, .near = 1'000}), kNear) << "there is no route";
  });
}

TEST(Subnets, WithoutOneAWayIsTriedAndRefusedIfNothingComesBack) {
  in_network(enter_own_network_as_root, [] {
    const TwoHosts hosts;
    EXPECT_TRUE(join(hosts, {"routed"}));
    hosts.enter(1);
    run("ip route del 10.2.0.0/24");
    run("ip route add default dev near");
    EXPECT_TRUE(join(hosts, {"routed"})) << "packets leave by another NIC, and arrive";
    for (const char* const way : {"via 10.3.0.9", "dev lo"}) {  // nobody is there
      hosts.enter(1);
      run(fmt::format("ip route replace default {}", way));
      const auto refused = join(hosts, {"routed"});
      ASSERT_FALSE(refused);
      EXPECT_EQ(refused.error().code, ErrorCode::kPeer);
      EXPECT_THAT(refused.error().message,
                  AllOf(HasSubstr("no packets reach the peer's 10.2.0.2: "),
                        HasSubstr("has nic0 (soft+10.1.0.1/24), none in a subnet of the peer's"),
                        HasSubstr("PACECAR_NICS"), HasSubstr("ip route add 10.2.0.2 via")));
    }
  });
}

}  // namespace
}  // namespace pacecar::test::subnets_test
