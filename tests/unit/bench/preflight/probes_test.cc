// What preflight asks the network and the kernel: on the loopback, and with made-up netlink
// answers.
#include <gtest/gtest.h>
#include <linux/dcbnl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstring>
#include <vector>

#include "bench/preflight/kernel_probes.h"

namespace pacecar::preflight::probes_test {
namespace {

TEST(PreflightPeer, LoopbackAnswersTheLargestPackets) {
  const PeerPath path = probe_peer("127.0.0.1");
  if (!path.error.empty()) GTEST_SKIP() << path.error;
  EXPECT_EQ(path.largest_bytes, 4096 + kRoceHeaders);
  EXPECT_EQ(path.failed_bytes, 0U);
}

TEST(PreflightPeer, UnresolvableNameIsAnError) {
  const PeerPath path = probe_peer("no host");
  EXPECT_NE(path.error, "");
  EXPECT_EQ(path.largest_bytes, 0U);
}

void append(std::vector<std::byte>& bytes, const void* data, size_t size) {
  const auto* from = static_cast<const std::byte*>(data);
  bytes.insert(bytes.end(), from, from + size);
}

// The kernel's answer for an interface with PFC on these priorities.
std::vector<std::byte> pfc_answer(uint8_t enabled) {
  ieee_pfc pfc{};
  pfc.pfc_en = enabled;
  nlattr inner{.nla_len = NLA_HDRLEN + sizeof(pfc), .nla_type = DCB_ATTR_IEEE_PFC};
  nlattr outer{.nla_len = static_cast<uint16_t>(NLA_HDRLEN + inner.nla_len),
               .nla_type = DCB_ATTR_IEEE | NLA_F_NESTED};
  const char name[] = "eth2\0\0\0";
  nlattr name_header{.nla_len = NLA_HDRLEN + 5, .nla_type = DCB_ATTR_IFNAME};
  dcbmsg dcb{.dcb_family = AF_UNSPEC, .cmd = DCB_CMD_IEEE_GET, .dcb_pad = 0};
  nlmsghdr header{};
  header.nlmsg_type = RTM_GETDCB;
  header.nlmsg_len =
      static_cast<uint32_t>(NLMSG_HDRLEN + sizeof(dcb) + NLA_HDRLEN + sizeof(name) + outer.nla_len);
  std::vector<std::byte> bytes;
  append(bytes, &header, sizeof(header));
  append(bytes, &dcb, sizeof(dcb));
  append(bytes, &name_header, sizeof(name_header));
  append(bytes, name, sizeof(name));
  append(bytes, &outer, sizeof(outer));
  append(bytes, &inner, sizeof(inner));
  append(bytes, &pfc, sizeof(pfc));
  return bytes;
}

TEST(PreflightPfc, PrioritiesAreParsedFromTheKernelsAnswer) {
  const auto pfc = parse_pfc(pfc_answer(0x18));
  ASSERT_TRUE(pfc);
  EXPECT_EQ(*pfc, 0x18);
}

TEST(PreflightPfc, TruncatedAnswerIsRefused) {
  const auto answer = pfc_answer(0x18);
  for (size_t size = 0; size < answer.size(); ++size) {
    EXPECT_FALSE(parse_pfc(std::span(answer).first(size))) << size;
  }
}

TEST(PreflightPfc, KernelErrorIsRefused) {
  auto answer = pfc_answer(0x18);
  const uint16_t type = NLMSG_ERROR;
  std::memcpy(answer.data() + offsetof(nlmsghdr, nlmsg_type), &type, sizeof(type));
  EXPECT_FALSE(parse_pfc(answer));
}

TEST(PreflightProbes, UnknownInterfaceHasNoPfcAndNoStatistics) {
  for (const char* name : {"", "nosuch0", "a-name-that-is-too-long-for-an-interface"}) {
    EXPECT_FALSE(ask_pfc(name));
    EXPECT_TRUE(ask_statistics(name).empty());
  }
}

}  // namespace
}  // namespace pacecar::preflight::probes_test
