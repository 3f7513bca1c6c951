// The parts of an endpoint alone, without a NIC and without a connection: the table of its peers,
// where its completions go, matching of receives and messages, and remote access to its memory.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <net/if.h>

#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "net_plugin/libfabric/core/atomics.h"
#include "net_plugin/libfabric/endpoint/initiator.h"
#include "net_plugin/libfabric/endpoint/receiver.h"
#include "net_plugin/libfabric/endpoint/target.h"
#include "tests/support/null_context.h"
#include "transport/io/sockaddr.h"

namespace pacecar::fabric::parts_test {
namespace {

Address address_of(uint8_t host, uint16_t port) {
  SocketAddress address{};
  address.v4 = {.sin_family = AF_INET,
                .sin_port = htons(port),
                .sin_addr = {.s_addr = htonl(0x0a000000 + host)}};
  return from_sockaddr(address);
}

// One NIC, on the loopback.
class Loopback : public test::NullContext {
  std::span<const NicInfo> nics() const override { return {&nic_, 1}; }
  const NicInfo nic_{.device = "lo"};
};

// An endpoint's state, with a completion queue and an address vector.
class EndpointParts : public ::testing::Test {
 protected:
  EndpointParts() {
    EXPECT_EQ(state_.peers.bind(vector_), 0);
    EXPECT_EQ(state_.completions.bind(queue_, FI_TRANSMIT | FI_RECV), 0);
    state_.completions.bind(received_, FI_RECV);
    state_.completions.bind(written_, FI_REMOTE_WRITE);
  }

  Peer& insert(uint8_t host) {
    const fi_addr_t number = vector_.names.add(address_of(host, 7));
    ++vector_.version;
    return *state_.peers.at(number);
  }
  Completion completion() {
    if (queue_.unread.empty()) throw std::runtime_error("there is no completion");
    return queue_.take();
  }

  fi_domain_attr attributes_{};
  fi_info info_{.domain_attr = &attributes_};
  fi_cq_attr queue_attributes_{.size = 16, .format = FI_CQ_FORMAT_TAGGED};
  Domain domain_{std::make_shared<Loopback>(), 0, info_, Params{.cma = AutoOrOff::kOff}};
  CompletionQueue queue_{domain_, queue_attributes_};
  Counter received_{domain_, FI_WAIT_NONE};
  Counter written_{domain_, FI_WAIT_NONE};
  AddressVector vector_{domain_};
  EndpointState state_{domain_};
};

// --- peers ---

TEST_F(EndpointParts, ALinkLocalNameOfAnotherHostGetsOurScope) {
  Address name{.scope_id = 4711, .port = 7};
  name.ip[0] = 0xfe;
  name.ip[1] = 0x80;
  EXPECT_EQ(domain_.with_own_scope(name).scope_id, if_nametoindex("lo"));
  EXPECT_EQ(domain_.with_own_scope(name).port, 7U);
  EXPECT_EQ(domain_.with_own_scope(address_of(1, 7)), address_of(1, 7));
}

TEST_F(EndpointParts, APeerIsTheSameByNumberAndByName) {
  Peer& peer = insert(1);
  EXPECT_EQ(&state_.peers.named(address_of(1, 7)), &peer);
  EXPECT_NE(&state_.peers.named(address_of(2, 7)), &peer);
  EXPECT_EQ(state_.peers.source_of(peer), 0U);
  EXPECT_EQ(state_.peers.at(1), nullptr);
}

TEST_F(EndpointParts, ANumberThatIsReusedIsAnotherPeer) {
  Peer& peer = insert(1);
  EXPECT_TRUE(vector_.names.remove(0));
  Peer& other = insert(2);
  EXPECT_EQ(state_.peers.at(0), &other);
  EXPECT_NE(&other, &peer);
  EXPECT_EQ(state_.peers.source_of(peer), FI_ADDR_NOTAVAIL);
}

TEST_F(EndpointParts, PeersOfOneHostThatProveNothingAreBounded) {
  constexpr size_t kMost = 1024;
  const auto held = [](const Peer&) { return true; };
  const auto of_host = [](size_t number) { return address_of(1, static_cast<uint16_t>(number)); };
  for (size_t i = 0; i < kMost; ++i) {
    ASSERT_TRUE(state_.peers.admits(of_host(i), held));
    state_.peers.named(of_host(i)).instance = i == 2 ? 1 : 0;
  }
  EXPECT_FALSE(state_.peers.admits(of_host(kMost), held));
  EXPECT_TRUE(state_.peers.admits(address_of(2, 1), held));
  EXPECT_TRUE(state_.peers.admits(of_host(1), held)) << "it is known";

  // Other peers take the places of peers that are gone, except of one that is held and one that has
  // greeted.
  const auto first_held = [](const Peer& peer) { return peer.number == 0; };
  for (size_t i = kMost; i < 3 * kMost; ++i) {
    ASSERT_TRUE(state_.peers.admits(of_host(i), first_held));
    Peer& peer = state_.peers.named(of_host(i));
    EXPECT_EQ(peer.name, of_host(i));
    EXPECT_EQ(&state_.peers.all()[peer.number], &peer);
    EXPECT_EQ(&state_.peers.named(of_host(i)), &peer);
  }
  EXPECT_EQ(state_.peers.all().size(), kMost);
  EXPECT_EQ(state_.peers.named(of_host(0)).number, 0U);
  EXPECT_EQ(state_.peers.named(of_host(2)).number, 2U);
}

TEST_F(EndpointParts, PeersOfAllHostsThatProveNothingAreBounded) {
  const auto held = [](const Peer&) { return true; };
  for (size_t i = 0; i < 4096; ++i) {
    const auto host = static_cast<uint8_t>(1 + i / 1000);
    const Address name = address_of(host, static_cast<uint16_t>(i));
    ASSERT_TRUE(state_.peers.admits(name, held));
    state_.peers.named(name);
  }
  EXPECT_FALSE(state_.peers.admits(address_of(9, 1), held));
}

TEST_F(EndpointParts, AFailureThatComesEarlierTakesThePlaceOfALaterOne) {
  Peer& peer = insert(1);
  peer.fail(Failure::When::kDrained, 1, "ended");
  EXPECT_FALSE(peer.sends_fail());
  peer.fail(Failure::When::kNow, 2, "broken");
  peer.fail(Failure::When::kSendsNow, 3, "cannot send");
  EXPECT_TRUE(peer.is_lost());
  EXPECT_EQ(peer.failure->error, 2);
}

// --- completions ---

TEST_F(EndpointParts, ACompletionIsReportedIfTheApplicationHasStartedItsOperation) {
  PendingCompletion pending;
  pending.completion.fail(FI_EIO, "of a message that was discarded");
  state_.completions.report(pending);
  EXPECT_TRUE(queue_.unread.empty());
  pending.completion.flags = FI_RECV;
  state_.completions.report(pending);
  EXPECT_EQ(completion().err, FI_EIO);
  EXPECT_EQ(received_.errors, 1U);
}

TEST_F(EndpointParts, ASuccessIsQueuedIfItIsWantedAndAlwaysCounted) {
  PendingCompletion pending;
  pending.completion.flags = FI_RECV;
  state_.completions.report(pending);
  EXPECT_TRUE(queue_.unread.empty());
  EXPECT_EQ(received_.value, 1U);
}

TEST_F(EndpointParts, ACounterThatHasMovedSinceTheLastTryIsNotWaitedFor) {
  ASSERT_TRUE(domain_.make_driver());
  Counter counter(domain_, FI_WAIT_FD);
  counter.fid.fclass = FI_CLASS_CNTR;
  fid* waited = &counter.fid;
  EXPECT_EQ(try_wait(nullptr, &waited, 1), 0);
  counter.count(false);  // and the application reads it only now
  EXPECT_EQ(try_wait(nullptr, &waited, 1), -FI_EAGAIN);
  EXPECT_EQ(try_wait(nullptr, &waited, 1), 0);
}

// --- receives ---

class ReceiverAlone : public EndpointParts {
 protected:
  // A tagged message of `bytes` bytes: 1, 2, ...
  FrameResult deliver(Peer& peer, uint64_t tag, size_t bytes) {
    std::vector<uint8_t> payload(bytes);
    std::iota(payload.begin(), payload.end(), uint8_t{1});
    return receiver_.on_message(peer, {{.kind = FrameKind::kMessage,
                                        .flags = kTagged,
                                        .payload = static_cast<uint32_t>(bytes),
                                        .tag = tag,
                                        .length = bytes},
                                       payload});
  }
  ssize_t post(uint64_t tag, PeerId from = kAnyPeer) {
    return receiver_.post(
        true, {.source = from, .tag = tag},
        {.context = this, .local = Local::one(place_.data(), place_.size(), nullptr)});
  }

  std::array<uint8_t, 8> place_{};
  BulkTransfers bulk_{state_};
  Receiver receiver_{state_, bulk_, 4};
};

TEST_F(ReceiverAlone, AMessageIsReceivedWhetherItOrItsReceiveIsFirst) {
  Peer& peer = insert(1);
  for (const bool message_first : {false, true}) {
    place_ = {};
    if (!message_first) {
      EXPECT_EQ(post(5), 0);
    }
    EXPECT_EQ(deliver(peer, 5, 3), FrameResult::kHandled);
    if (message_first) {
      EXPECT_EQ(post(5), 0);
    }
    const Completion got = completion();
    EXPECT_EQ(got.err, 0);
    EXPECT_EQ(got.len, 3U);
    EXPECT_EQ(got.source, 0U);
    EXPECT_EQ(place_, (std::array<uint8_t, 8>{1, 2, 3}));
  }
}

TEST_F(ReceiverAlone, NoMoreReceivesArePostedThanTheEndpointHasRoomFor) {
  insert(1);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(post(5), 0);
  EXPECT_EQ(post(5), -FI_EAGAIN);
  EXPECT_EQ(receiver_.cancel(this), 0);
  EXPECT_EQ(completion().err, FI_ECANCELED);
  EXPECT_EQ(post(5), 0);
}

TEST_F(ReceiverAlone, AMessageWaitsWhileTheQueueIsFull) {
  Peer& peer = insert(1);
  EXPECT_EQ(post(5), 0);
  while (!queue_.full()) queue_.add({});
  EXPECT_EQ(deliver(peer, 5, 3), FrameResult::kNoRoom);
  queue_.unread.clear();
  EXPECT_EQ(deliver(peer, 5, 3), FrameResult::kHandled);
  EXPECT_EQ(completion().len, 3U);
}

TEST_F(ReceiverAlone, WhenAPeerFailsOnlyReceivesFromItFail) {
  Peer& lost = insert(1);
  Peer& other = insert(2);
  EXPECT_EQ(post(5, lost.number), 0);
  EXPECT_EQ(post(6), 0);
  receiver_.fail_receives_from(lost, FI_ECONNRESET, "it has ended");
  EXPECT_EQ(completion().tag, 5U);
  EXPECT_TRUE(queue_.unread.empty());
  EXPECT_EQ(deliver(other, 6, 1), FrameResult::kHandled);
  EXPECT_EQ(completion().source, 1U);
}

TEST_F(ReceiverAlone, OfAFailedPeerEagerMessagesRemainAndOffersGo) {
  Peer& lost = insert(1);
  EXPECT_EQ(deliver(lost, 5, 3), FrameResult::kHandled);
  const Frame offer{.kind = FrameKind::kOffer, .flags = kTagged, .tag = 6, .length = 8};
  EXPECT_EQ(receiver_.on_message(lost, {offer, {}}), FrameResult::kHandled);
  receiver_.forget_messages_of(lost);
  EXPECT_EQ(post(6), 0);
  EXPECT_TRUE(queue_.unread.empty());
  EXPECT_EQ(post(5), 0);
  EXPECT_EQ(completion().tag, 5U);
}

TEST_F(ReceiverAlone, ACancelledSharedBufferIsReturnedAfterItsMessages) {
  ASSERT_TRUE(domain_.make_driver());
  Peer& peer = insert(1);
  const Local local = Local::one(place_.data(), place_.size(), nullptr);
  const auto shared = std::make_shared<SharedBuffer>();
  const auto post_shared = [&] {
    return receiver_.post(false, {}, {.context = this, .local = local, .shared = shared});
  };
  receiver_.min_multi_receive = 1;
  EXPECT_EQ(post_shared(), 0);
  EXPECT_EQ(receiver_.on_message(peer, {{.kind = FrameKind::kOffer}, {}}), FrameResult::kHandled);
  EXPECT_EQ(receiver_.cancel(this), 0);
  EXPECT_TRUE(queue_.unread.empty()) << "a message may still be written into it";
  uint64_t number = 0;
  state_.operations.for_each([&](Operation& operation) { number = operation.number; });
  EXPECT_EQ(bulk_.on_placed(peer, {.id = number}), FrameResult::kHandled);
  const Completion message = completion();
  EXPECT_EQ(message.err, 0);
  EXPECT_EQ(message.flags & FI_MULTI_RECV, 0U);
  const Completion end = completion();
  EXPECT_EQ(end.err, FI_ECANCELED);
  EXPECT_NE(end.flags & FI_MULTI_RECV, 0U);
  EXPECT_EQ(end.op_context, this);
}

TEST_F(ReceiverAlone, AReceiveNeedsItsRegionNoLonger) {
  iovec range{place_.data(), place_.size()};
  const fi_mr_attr attributes{.mr_iov = &range, .iov_count = 1};
  Peer& peer = insert(1);
  for (const bool gpu : {false, true}) {
    auto region = std::make_unique<MemoryRegion>(domain_, attributes);
    if (gpu) region->device = std::make_unique<StagedRange>(nullptr, range.iov_base, range.iov_len);
    const Local local = Local::one(place_.data(), place_.size(), region.get());
    EXPECT_EQ(receiver_.post(true, {.tag = 5}, {.context = this, .local = local}), 0);
    receiver_.forget(*region);
    region.reset();
    EXPECT_EQ(deliver(peer, 5, 3), FrameResult::kHandled);
    EXPECT_EQ(completion().err, gpu ? FI_EINVAL : 0) << "only a GPU copies into its memory";
  }
}

// --- operations ---

TEST_F(EndpointParts, EagerReadsOfOnePeerAreBoundedInBytes) {
  constexpr size_t kReads = 100;
  constexpr size_t kAtOnce = (size_t{16} << 20) / kEagerBytes;
  ASSERT_TRUE(domain_.make_driver());
  BulkTransfers bulk(state_);
  Initiator initiator(state_, bulk, kReads);
  Peer& peer = insert(1);
  std::vector<uint8_t> bytes(kEagerBytes);
  const OperationRequest read{.frame = {.kind = FrameKind::kRead},
                              .local = Local::one(bytes.data(), bytes.size(), nullptr)};
  for (size_t i = 0; i < kReads; ++i) EXPECT_EQ(initiator.start(read, peer), 0);
  EXPECT_EQ(peer.queued_reads.size(), kReads - kAtOnce);
  std::vector<uint64_t> asked;
  state_.operations.for_each([&](const Operation& operation) {
    if (operation.awaits_done) asked.push_back(operation.number);
  });
  ASSERT_EQ(asked.size(), kAtOnce);
  EXPECT_EQ(initiator.on_done(peer, {{.kind = FrameKind::kDone, .id = asked[0]}, bytes}),
            FrameResult::kHandled);
  initiator.start_queued_reads(peer);
  EXPECT_EQ(peer.queued_reads.size(), kReads - kAtOnce - 1);
}

// --- remote access ---

class TargetAlone : public EndpointParts {
 protected:
  static constexpr uint64_t kKey = 9;

  TargetAlone() {
    EXPECT_TRUE(domain_.make_driver());
    region_.key = kKey;
    domain_.regions[kKey] = &region_;
  }
  FrameResult request(Frame frame, const std::vector<uint8_t>& payload) {
    frame.payload = static_cast<uint32_t>(payload.size());
    return target_.on_request(peer_, {frame, payload});
  }

  std::vector<uint8_t> memory_ = {0, 0, 0, 0};
  iovec range_{memory_.data(), memory_.size()};
  fi_mr_attr range_attributes_{.mr_iov = &range_, .iov_count = 1, .access = FI_REMOTE_WRITE};
  MemoryRegion region_{domain_, range_attributes_};
  Peer& peer_ = insert(1);
  BulkTransfers bulk_{state_};
  Target target_{state_, bulk_};
};

TEST_F(TargetAlone, AWriteWithinTheRegionTakesEffectAndIsCounted) {
  const Frame write{.kind = FrameKind::kWrite, .tag = kKey, .length = 2, .address = 1};
  EXPECT_EQ(request(write, {7, 8}), FrameResult::kHandled);
  EXPECT_EQ(memory_, (std::vector<uint8_t>{0, 7, 8, 0}));
  EXPECT_EQ(written_.value, 1U);
}

TEST_F(TargetAlone, AWriteThatIsNotAllowedChangesNothing) {
  const Frame write{.kind = FrameKind::kWrite, .tag = kKey, .length = 2, .address = 1};
  Frame beyond = write;
  beyond.address = 3;
  Frame elsewhere = write;
  elsewhere.tag = kKey + 1;
  for (const Frame& frame : {beyond, elsewhere}) {
    EXPECT_EQ(request(frame, {7, 8}), FrameResult::kHandled) << "the refusal is a reply";
  }
  region_.access = FI_REMOTE_READ;
  EXPECT_EQ(request(write, {7, 8}), FrameResult::kHandled);
  EXPECT_EQ(request(write, {7}), FrameResult::kProtocolError) << "a byte is missing";
  EXPECT_EQ(memory_, (std::vector<uint8_t>{0, 0, 0, 0}));
  EXPECT_EQ(written_.value, 0U);
}

TEST_F(TargetAlone, AnAtomicIsAppliedIfItsOperandsAreThere) {
  const Frame sum{.kind = FrameKind::kAtomic,
                  .operation = static_cast<uint8_t>(AtomicOp::kSum),
                  .datatype = 1,  // FI_UINT8
                  .tag = kKey,
                  .length = 2,
                  .address = 2};
  memory_ = {1, 2, 3, 4};
  EXPECT_EQ(request(sum, {10, 20}), FrameResult::kHandled);
  EXPECT_EQ(request(sum, {10}), FrameResult::kHandled) << "the refusal is a reply";
  EXPECT_EQ(memory_, (std::vector<uint8_t>{1, 2, 13, 24}));
}

}  // namespace
}  // namespace pacecar::fabric::parts_test
