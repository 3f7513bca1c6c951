// A communicator's attributes (from NCCL) and weight (from its user) reach the message layer. The
// plugin is linked in, so that the tests can read its statistics.
#include <gtest/gtest.h>

#include <array>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "net_plugin/abi/tables.h"
#include "net_plugin/communicator.h"
#include "net_plugin/host/host.h"

extern "C" const pacecar::nccl::NetV11 ncclNetPlugin_v11;

namespace pacecar::test::hints_test {
namespace {

using nccl::HandleBytes;
using nccl::HostError;
using nccl::NcclResult;
using nccl::poll_until;

constexpr const nccl::NetV11& kNet = ncclNetPlugin_v11;

class HintsTest : public testing::Test {
 protected:
  HintsTest() { setenv("PACECAR_NICS", "soft:udp:lo", 1); }
  ~HintsTest() override { unsetenv("PACECAR_WEIGHT"); }
};

class Communicator {
 public:
  Communicator() {
    nccl::CommConfig config{nccl::kUndefined};
    if (kNet.init(&context_, 0x1234, &config, nullptr, nullptr) != NcclResult::kSuccess) {
      throw HostError("init failed");
    }
  }
  ~Communicator() { kNet.finalize(context_); }
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // Sets the expected peers as NCCL does; the other attributes are unknown.
  NcclResult expect(int32_t peers) {
    const nccl::CommAttributes unknown{-1, -1, -1, -1};
    nccl::NetAttributes attributes{unknown, {peers, 1, 2, 1}, ~0U, ~0U, ~0U};
    return kNet.setNetAttr(context_, &attributes);
  }

  // The sending end of a connection of this process to itself.
  void* connect() {
    HandleBytes handle{};
    void* listening = nullptr;
    EXPECT_EQ(kNet.listen(context_, 0, handle.data(), &listening), NcclResult::kSuccess);
    void* send = nullptr;
    void* receive = nullptr;
    poll_until("connecting to this process", [&] {
      nccl::DeviceHandle* device = nullptr;
      if (send == nullptr) kNet.connect(context_, 0, handle.data(), &send, &device);
      if (receive == nullptr) kNet.accept(listening, &receive, &device);
      return send != nullptr && receive != nullptr;
    });
    kNet.closeListen(listening);
    ends_.push_back(receive);
    ends_.push_back(send);
    return send;
  }
  void close() {
    for (void* end : ends_) kNet.closeSend(end);
    ends_.clear();
  }

 private:
  void* context_ = nullptr;
  std::vector<void*> ends_;
};

Statistics statistics() { return plugin::current_context()->statistics(0); }

TEST_F(HintsTest, ExpectedSendersReachTheAllocator) {
  Communicator communicator;
  EXPECT_EQ(statistics().expected_senders, 0U) << "before setNetAttr";
  for (const int32_t peers : {1, 12, 3, 2048}) {
    EXPECT_EQ(communicator.expect(peers), NcclResult::kSuccess);
    EXPECT_EQ(statistics().expected_senders, static_cast<uint64_t>(peers));
  }
}

TEST_F(HintsTest, ImpossiblePeerCountsMeanUnknown) {
  Communicator communicator;
  for (const int32_t nonsense : {0, -1, INT_MIN, 2049, INT_MAX}) {
    EXPECT_EQ(communicator.expect(7), NcclResult::kSuccess);
    EXPECT_EQ(communicator.expect(nonsense), NcclResult::kSuccess);
    EXPECT_EQ(statistics().expected_senders, 0U) << nonsense;
  }
}

TEST_F(HintsTest, TheLargestCountOfAllCommunicatorsIsUsed) {
  Communicator stays;
  stays.expect(4);
  {
    Communicator goes;
    EXPECT_EQ(statistics().expected_senders, 4U) << "the second communicator has no count yet";
    goes.expect(9);
    EXPECT_EQ(statistics().expected_senders, 9U);
    stays.expect(2);
    EXPECT_EQ(statistics().expected_senders, 9U);
  }
  EXPECT_EQ(statistics().expected_senders, 2U);
}

TEST_F(HintsTest, TheLastFinalizeResetsExpectedSenders) {
  { Communicator().expect(9); }
  const Communicator communicator;
  EXPECT_EQ(statistics().expected_senders, 0U);
}

TEST_F(HintsTest, ACommunicatorKeepsTheWeightOfItsInit) {
  Communicator plain;
  setenv("PACECAR_WEIGHT", "5", 1);
  Communicator heavy;
  setenv("PACECAR_WEIGHT", "3", 1);
  plain.connect();
  EXPECT_EQ(statistics().weight, 1U);
  heavy.connect();
  EXPECT_EQ(statistics().weight, 5U) << "both share the flow of this process to itself";
  heavy.close();
  plain.close();
}

TEST_F(HintsTest, AnOutOfRangeWeightIsRefused) {
  setenv("PACECAR_WEIGHT", "65", 1);
  EXPECT_THROW(Communicator(), HostError);
  const auto refused = plugin::open_communicator(std::nullopt);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "PACECAR_WEIGHT='65' (environment) is not valid: give a whole number from 1 to 64");
}

int g_unused_classes = 0;

void count_unused_classes(nccl::LogSeverity severity, unsigned long, const char*, int,
                          const char* format, ...) {
  std::array<char, 512> line{};
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line.data(), line.size(), format, arguments);
  va_end(arguments);
  const bool tells =
      std::string_view(line.data()).find("traffic class 32 is not used") != std::string_view::npos;
  if (severity == nccl::LogSeverity::kWarn && tells) ++g_unused_classes;
}

TEST_F(HintsTest, EachCommunicatorReportsAnUnusedTrafficClassOnce) {
  setenv("PACECAR_TC", "0", 1);
  nccl::CommConfig config{32};
  std::array<void*, 2> contexts{};
  for (void*& context : contexts) {
    ASSERT_EQ(kNet.init(&context, 0x1234, &config, count_unused_classes, nullptr),
              NcclResult::kSuccess);
    auto& communicator = *static_cast<plugin::Communicator*>(context);
    communicator.check_traffic_class(32);  // as each connection of an older NCCL does
  }
  EXPECT_EQ(g_unused_classes, 2);
  for (void* const context : contexts) kNet.finalize(context);
  unsetenv("PACECAR_TC");
}

}  // namespace
}  // namespace pacecar::test::hints_test
