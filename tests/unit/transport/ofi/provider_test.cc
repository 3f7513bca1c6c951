#include "transport/ofi/provider.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include <cstdlib>
#include <cstring>

#include "tests/support/own_network.h"

namespace pacecar::provider_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// The fi_info of a usable provider; each test changes it.
class OfiProviderTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto library = OfiLibrary::load();
    if (!library) GTEST_SKIP() << library.error().message;
    info_ = InfoHandle((*library)->dupinfo(nullptr), InfoDeleter{*library});
    info_->caps = FI_RMA;
    info_->ep_attr->type = FI_EP_RDM;
    info_->ep_attr->max_msg_size = 1 << 30;
    info_->ep_attr->max_order_waw_size = 1 << 30;
    info_->domain_attr->mr_key_size = 8;
    info_->tx_attr->inject_size = 64;
    info_->tx_attr->iov_limit = info_->tx_attr->rma_iov_limit = 2;
    info_->tx_attr->msg_order = FI_ORDER_WAW;
    name("tcp;ofi_rxm");
  }
  void name(const char* provider) {
    std::free(info_->fabric_attr->prov_name);
    info_->fabric_attr->prov_name = strdup(provider);
  }
  OfiTraits traits() const { return traits_of(*info_); }

  InfoHandle info_;
};

TEST_F(OfiProviderTest, KeysMustFitIntoAMessage) {
  EXPECT_TRUE(is_usable(*info_));
  for (const size_t bytes : {0, 9}) {
    info_->domain_attr->mr_key_size = bytes;
    EXPECT_FALSE(is_usable(*info_)) << bytes;
  }
}

TEST_F(OfiProviderTest, WritesMustCarryAPage) {
  info_->ep_attr->max_msg_size = 4095;
  EXPECT_FALSE(is_usable(*info_));
  info_->ep_attr->max_msg_size = 4096;
  EXPECT_TRUE(is_usable(*info_));
}

TEST_F(OfiProviderTest, MemoryModesBecomeTraits) {
  EXPECT_FALSE(traits().virtual_addresses || traits().endpoint_memory || traits().device);
  info_->domain_attr->mr_mode = FI_MR_VIRT_ADDR;
  EXPECT_TRUE(traits().virtual_addresses);
  info_->domain_attr->mr_mode = FI_MR_ENDPOINT;
  EXPECT_TRUE(traits().endpoint_memory);
  info_->domain_attr->mr_mode = FI_MR_ALLOCATED;
  EXPECT_TRUE(traits().device);
}

TEST_F(OfiProviderTest, KeyMaskFollowsTheKeySizeOfTheProvider) {
  for (const auto& [bytes, mask] : {std::pair<size_t, uint64_t>{1, 0xFF},
                                    {4, 0xFFFFFFFF},
                                    {7, 0xFFFFFFFFFFFFFF},
                                    {8, ~uint64_t{0}}}) {
    info_->domain_attr->mr_key_size = bytes;
    EXPECT_EQ(traits().key_mask, mask) << bytes;
  }
}

TEST_F(OfiProviderTest, ProviderIsOrderedIfTheLargestWriteIs) {
  EXPECT_TRUE(traits().ordered);
  info_->ep_attr->max_order_waw_size = OfiTraits::kMaxWrite;
  EXPECT_TRUE(traits().ordered);
  info_->ep_attr->max_order_waw_size = OfiTraits::kMaxWrite - 1;
  EXPECT_FALSE(traits().ordered);
  info_->ep_attr->max_order_waw_size = 1 << 30;
  info_->tx_attr->msg_order = FI_ORDER_RAW;
  EXPECT_FALSE(traits().ordered);
  info_->tx_attr->msg_order = FI_ORDER_RMA_WAW;
  EXPECT_TRUE(traits().ordered);
}

TEST_F(OfiProviderTest, NotificationIsTheBestThatTheProviderAllows) {
  EXPECT_EQ(traits().notification, OfiNotification::kWithWrite);
  info_->tx_attr->rma_iov_limit = 1;
  EXPECT_EQ(traits().notification, OfiNotification::kAfterWrite);
  info_->tx_attr->rma_iov_limit = 4;
  info_->tx_attr->iov_limit = 1;
  EXPECT_EQ(traits().notification, OfiNotification::kAfterWrite);
  info_->tx_attr->iov_limit = 4;
  info_->domain_attr->mr_mode = FI_MR_ALLOCATED;
  EXPECT_EQ(traits().notification, OfiNotification::kAfterWrite)
      << "a device may write parts in any order";
  info_->domain_attr->mr_mode = 0;
  info_->tx_attr->msg_order = FI_ORDER_NONE;
  EXPECT_EQ(traits().notification, OfiNotification::kAfterDelivery);
}

TEST_F(OfiProviderTest, CompletionDataIsNotUsedAsNotification) {
  info_->domain_attr->cq_data_size = 8;
  info_->tx_attr->rma_iov_limit = 1;
  EXPECT_EQ(traits().notification, OfiNotification::kAfterWrite);
}

TEST_F(OfiProviderTest, WritesAreLimitedByTheProtocolAndTheProvider) {
  EXPECT_EQ(traits().max_write, OfiTraits::kMaxWrite);
  info_->ep_attr->max_msg_size = 8192;
  EXPECT_EQ(traits().max_write, 8192U);
}

TEST_F(OfiProviderTest, SharedMemoryIsNotListedAndRefusedWithWhatToUse) {
  EXPECT_EQ(lowest_layer("tcp;ofi_rxm"), "tcp");
  name("shm");
  EXPECT_FALSE(is_usable(*info_));
  const auto chosen = choose_ofi_provider("shm", "");
  ASSERT_FALSE(chosen);
  EXPECT_EQ(chosen.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(chosen.error().message, HasSubstr("choose ofi:tcp:lo or soft:udp:lo"));
}

TEST_F(OfiProviderTest, ErrorForAnUnknownProviderNamesTheChoices) {
  const auto chosen = choose_ofi_provider("carrier-pigeon", "");
  ASSERT_FALSE(chosen);
  EXPECT_EQ(chosen.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(chosen.error().message,
              AllOf(HasSubstr("has no provider 'carrier-pigeon' that finds a device here"),
                    HasSubstr("choose from ofi:")));
}

TEST_F(OfiProviderTest, ErrorForAnUnknownDomainNamesTheChoices) {
  if (!choose_ofi_provider("tcp", "lo")) GTEST_SKIP() << "no provider tcp on the loopback";
  const auto chosen = choose_ofi_provider("tcp", "eth4711");
  ASSERT_FALSE(chosen);
  EXPECT_EQ(chosen.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(chosen.error().message,
              AllOf(HasSubstr("libfabric's provider 'tcp' has no domain 'eth4711' here"),
                    HasSubstr("ofi:tcp;ofi_rxm:lo"), Not(HasSubstr("shm"))));
}

TEST_F(OfiProviderTest, ProviderWithoutReliableDatagramsIsRefusedWithTheChoices) {
  const auto chosen = choose_ofi_provider("UDP", "");
  if (chosen) GTEST_SKIP() << "the provider UDP has reliable datagrams here";
  EXPECT_THAT(chosen.error().message, Not(IsEmpty()));
  EXPECT_THAT(chosen.error().message, HasSubstr("choose "));
}

TEST_F(OfiProviderTest, ProviderIsFoundByItsNameOrItsLowestLayer) {
  const auto by_layer = choose_ofi_provider("tcp", "lo");
  if (!by_layer) GTEST_SKIP() << by_layer.error().message;
  EXPECT_EQ(by_layer->domain, "lo");
  EXPECT_EQ(lowest_layer(by_layer->name), "tcp");
  const auto by_name = choose_ofi_provider(by_layer->name, "lo");
  ASSERT_TRUE(by_name) << by_name.error().message;
  EXPECT_EQ(by_name->name, by_layer->name);
}

// libfabric lists the link-local address first.
TEST_F(OfiProviderTest, AGlobalAddressIsUsedWhereThereIsOne) {
  if (!choose_ofi_provider("tcp", "lo")) GTEST_SKIP() << "no provider tcp on the loopback";
  test::in_network(test::enter_own_network_as_root, [] {
    const char* const set_up =
        "echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad && "
        "ip link add six0 type veth peer name six1 && ip link set up dev six1 && "
        "ip link set up dev six0 && ip address add fd00::2/64 dev six0 nodad";
    if (std::system(set_up) != 0) return;  // no veth here, or no IPv6
    const auto chosen = choose_ofi_provider("tcp", "six0");
    ASSERT_TRUE(chosen) << chosen.error().message;
    ASSERT_EQ(chosen->info->addr_format, uint32_t{FI_SOCKADDR_IN6});
    const auto& address = *static_cast<const sockaddr_in6*>(chosen->info->src_addr);
    EXPECT_FALSE(IN6_IS_ADDR_LINKLOCAL(&address.sin6_addr));
  });
}

TEST_F(OfiProviderTest, EachDomainIsListedOnce) {
  const auto listed = list_ofi_providers();
  ASSERT_TRUE(listed);
  std::vector<std::string> names;
  for (const OfiProvider& provider : *listed)
    names.push_back(provider.name + ":" + provider.domain);
  std::ranges::sort(names);
  EXPECT_EQ(std::ranges::adjacent_find(names), names.end());
}

}  // namespace
}  // namespace pacecar::provider_test
