// Processes with NICs of different networks: a connection uses NICs that can be joined. Without
// such NICs, the error names the NICs of both processes.
#include "transport/api/joining.h"

#include <gmock/gmock.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "tests/support/bootstrap_pair.h"
#include "tests/support/joining_process.h"
#include "transport/engine/bootstrap/bootstrap.h"
#include "transport/wire/address.h"

namespace pacecar::test::joining_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

void expect_joins(Process& from, Process& to, size_t own, size_t peer) {
  const auto ends = connect(from.context(), 0, to.context(), 0);
  ASSERT_TRUE(ends) << ends.error().message;
  EXPECT_EQ(ends->send->nic(), own);
  EXPECT_EQ(ends->receive->nic(), peer);
  expect_carries(from.context(), to.context(), *ends);
  for (size_t i = 0; i < from.context().nics().size(); ++i) {
    EXPECT_EQ(from.context().statistics(i).messages_sent > 0, i == own) << i;
  }
  for (size_t i = 0; i < to.context().nics().size(); ++i) {
    EXPECT_EQ(to.context().statistics(i).messages_received > 0, i == peer) << i;
  }
}

TEST(MixedNetworks, RequestedNicsAreUsedIfTheyCanBeJoined) {
  Process from({{{"soft"}}, {{"roce"}}});
  Process to({{{"roce", "soft"}}, {{"soft"}}});
  expect_joins(from, to, 0, 0);
  EXPECT_THAT(from.lines(), IsEmpty());
  EXPECT_THAT(to.lines(), IsEmpty());
}

TEST(MixedNetworks, AnotherNicOfThePeerStandsIn) {
  Process from({{{"soft"}}, {{"roce"}}});
  Process to({{{"ofi:tcp"}}, {{"roce"}}, {{"soft"}}});
  expect_joins(from, to, 0, 2);
  EXPECT_THAT(from.lines(), IsEmpty());
  EXPECT_THAT(to.lines(), ElementsAre("connections with 127.0.0.1 use nic2 (soft) in place of nic0 "
                                      "(ofi:tcp): the peer's NIC is of that network"));
}

TEST(MixedNetworks, AnotherNicOfTheCallerStandsIn) {
  Process from({{{"soft"}}, {{"roce"}}});
  Process to({{{"roce"}}});
  expect_joins(from, to, 1, 0);
  EXPECT_THAT(from.lines(), ElementsAre(HasSubstr("use nic1 (roce) in place of nic0 (soft)")));
  EXPECT_THAT(to.lines(), IsEmpty());
}

TEST(MixedNetworks, AnotherNicOfEachProcessStandsIn) {
  Process from({{{"soft"}}, {{"ofi:tcp"}}});
  Process to({{{"roce"}}, {{"ofi:tcp"}}});
  expect_joins(from, to, 1, 1);
}

TEST(MixedNetworks, StandInIsLoggedOncePerPeer) {
  Process from({{{"soft"}}, {{"roce"}}});
  Process to({{{"roce"}}});
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(connect(from.context(), 0, to.context(), 0));
  EXPECT_EQ(from.lines().size(), 1U);
}

TEST(MixedNetworks, BondedNicsStandInTogether) {
  Process from({{{"soft"}}, {{"roce"}, {"roce"}}});
  Process to({{{"ofi:tcp"}}, {{"roce"}, {"roce"}}});
  expect_joins(from, to, 1, 1);
}

// NCCL may bond NICs of two networks; the peer needs only one of the networks.
TEST(MixedNetworks, OneNicOfAMixedBondIsEnough) {
  Process from({{{"roce"}}});
  Process to({{{"soft"}}, {{"roce"}}});
  const size_t joined = to.context().bond(std::vector<size_t>{0, 1}).value();
  const auto ends = connect(from.context(), 0, to.context(), joined);
  ASSERT_TRUE(ends) << ends.error().message;
  EXPECT_EQ(ends->receive->nic(), 1U);
  expect_carries(from.context(), to.context(), *ends);
}

TEST(MixedNetworks, MemoryRegisteredWithTheRequestedNicIsRefusedByTheStandIn) {
  Process from({{{"soft"}}, {{"roce"}}});
  Process to({{{"ofi:tcp"}}, {{"roce"}}});
  const auto ends = connect(from.context(), 0, to.context(), 0);
  ASSERT_TRUE(ends) << ends.error().message;
  std::vector<uint8_t> bytes(64);
  const Memory* const out = from.context().register_memory(0, bytes.data(), 64).value();
  const auto sent = ends->send->isend(bytes.data(), 64, 0, out);
  ASSERT_FALSE(sent);
  EXPECT_THAT(sent.error().message, HasSubstr("register it with the connection's nic()"));
  const Memory* const in = to.context().register_memory(0, bytes.data(), 64).value();
  const ReceiveBuffer buffer{bytes.data(), 64, 0, in};
  const auto posted = ends->receive->irecv({&buffer, 1});
  ASSERT_FALSE(posted);
  EXPECT_EQ(posted.error().code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(from.context().deregister_memory(0, out));
  EXPECT_TRUE(to.context().deregister_memory(0, in));
}

const bootstrap::ClusterKey kKey{std::vector<uint8_t>(16, 0x5a)};

TEST(ClusterKeys, ProcessesWithTheSameKeyConnect) {
  Process from({{{"soft"}}}), to({{{"soft"}}});
  from.share_key(kKey);
  to.share_key(kKey);
  expect_joins(from, to, 0, 0);
}

TEST(ClusterKeys, HandleWithoutTheKeyIsRefused) {
  for (const bool listener_has_it : {false, true}) {
    SCOPED_TRACE(listener_has_it);
    Process from({{{"soft"}}}), to({{{"soft"}}});
    (listener_has_it ? to : from).share_key(kKey);
    const auto listener = to.context().listen(0).value();
    const auto connecting = from.context().connect(0, listener->handle()).value();
    const auto made = finish(*connecting, *listener);
    ASSERT_FALSE(made);
    EXPECT_THAT(made.error().message,
                AllOf(HasSubstr("the listener at 127.0.0.1:"), HasSubstr("PACECAR_KEY_FILE")));
    while (to.lines().empty()) EXPECT_EQ(listener->accept().value(), nullptr);
    EXPECT_THAT(to.lines(), ElementsAre(AllOf(HasSubstr("the caller at 127.0.0.1:"),
                                              HasSubstr("PACECAR_KEY_FILE"))));
  }
}

// The error of the connecting side; the listening side must have logged it.
std::string refusal(Process& from, Process& to) {
  const auto ends = connect(from.context(), 0, to.context(), 0);
  EXPECT_FALSE(ends);
  if (ends) return "";
  EXPECT_EQ(ends.error().code, ErrorCode::kPeer);
  EXPECT_THAT(to.lines(), ElementsAre(HasSubstr("share no kind of network")));
  return ends.error().message;
}

TEST(MixedNetworks, ErrorWithoutACommonNetworkNamesTheNicsOfBothSides) {
  Process from({{{"soft"}}, {{"roce"}}});
  Process to({{{"ofi:tcp"}}});
  EXPECT_THAT(
      refusal(from, to),
      AllOf(HasSubstr("share no kind of network: "), HasSubstr("has nic0 (soft) and nic1 (roce), "),
            HasSubstr("has nic0 (ofi:tcp);"), HasSubstr("(pid " + std::to_string(getpid()) + ")"),
            HasSubstr("PACECAR_NICS"), HasSubstr("the listener at 127.0.0.1:")));
}

// NCCL relies on the GPU memory support that the device has announced.
TEST(MixedNetworks, NicWithLessGpuMemorySupportDoesNotStandIn) {
  Process from({{{"roce"}}, {{"soft"}}});
  from.info(0).cuda = true;
  Process to({{{"soft"}}});
  EXPECT_THAT(refusal(from, to),
              HasSubstr("nic1 (soft, but not for the same GPU memory: see PACECAR_GPU)"));

  Process listening({{{"roce"}}, {{"soft"}}});
  listening.info(0).cuda = listening.info(0).dma_buf = true;
  listening.info(1).cuda = true;
  Process calling({{{"soft"}}});
  EXPECT_THAT(refusal(calling, listening), HasSubstr("nic1 (soft, but not for the same GPU"));
}

TEST(MixedNetworks, NicWithFullGpuMemorySupportIsFoundBehindOneWithLess) {
  Process from({{{"roce"}}, {{"soft"}}, {{"soft"}}});
  from.info(0).cuda = from.info(2).cuda = true;
  Process to({{{"soft"}}});
  expect_joins(from, to, 2, 0);

  Process calling({{{"soft"}}});
  Process listening({{{"roce"}}, {{"soft"}}, {{"soft"}}});
  listening.info(0).cuda = listening.info(2).cuda = true;
  expect_joins(calling, listening, 0, 2);
}

// The announced size limit and need of a flush must hold for the stand-in, too.
TEST(MixedNetworks, NicThatNeedsAFlushOrASizeLimitDoesNotStandIn) {
  for (const bool limited : {false, true}) {
    Process from({{{"roce"}}, {{"soft"}}});
    from.info(0).cuda = from.info(1).cuda = true;
    if (limited) {
      from.info(1).gpu_message_bytes = 1 << 20;
    } else {
      from.info(1).gpu_flush = true;
    }
    Process to({{{"soft"}}});
    EXPECT_THAT(refusal(from, to), HasSubstr("but not for the same GPU memory"));
  }
}

// Hosts may route by the source address, and firewalls may filter by it.
TEST(Bootstrapping, CallsComeFromTheChosenAddress) {
  const auto loopback = [](uint8_t host) {
    return Address{.ip = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, host}};
  };
  Process ours(loopback(2), {{{"soft"}}});
  Process theirs({{{"soft"}}});
  // Their handle leads to a listener that only looks at the caller's address.
  auto contents =
      bootstrap::parse_handle({theirs.context().listen(0).value()->handle().bytes}).value();
  const auto listener = bootstrap::Socket::listen_on(loopback(1));
  contents.address = listener.local();
  const auto connecting = ours.context().connect(0, {bootstrap::encode_handle(contents).bytes});
  ASSERT_TRUE(connecting) << connecting.error().message;
  Address caller;
  while (!listener.accept(caller)) {
    ASSERT_TRUE((*connecting)->poll());
    sched_yield();
  }
  EXPECT_EQ(ip_to_string(caller), "127.0.0.2");
}

TEST(Bootstrapping, TimeInWhichTheHostWasSuspendedDoesNotCount) {
  Process ours({{{"soft"}}}), theirs({{{"soft"}}});
  for (Process* const process : {&ours, &theirs}) {
    process->bound_connecting(Duration::from_ms(1500));
  }
  const auto listener = theirs.context().listen(0).value();
  const auto connecting = ours.context().connect(0, listener->handle()).value();
  EXPECT_EQ(connecting->poll().value(), nullptr);
  EXPECT_EQ(listener->accept().value(), nullptr);
  std::this_thread::sleep_for(std::chrono::seconds(2));
  const auto ends = test::finish(*connecting, *listener);
  ASSERT_TRUE(ends) << ends.error().message;
  expect_carries(ours.context(), theirs.context(), *ends);
}

// It has accepted the call, and drops it as others wait.
TEST(Bootstrapping, AListenerThatWasTooBusyToReadTheOfferGetsItOnceMore) {
  Process process({{{"soft"}}}), other({{{"soft"}}});
  const Handle named = other.context().listen(0).value()->handle();
  const auto identity = bootstrap::parse_handle({named.bytes}).value().identity;
  const auto listener =
      BootstrapListener::open(test::ipv4_loopback(), identity, Duration::from_s(10), {}).value();
  const auto connecting = process.context().connect(0, Handle{listener->handle().bytes}).value();
  const auto offered = [&] {
    std::unique_ptr<BootstrapSession> session;
    for (; session == nullptr; session = listener->poll(clock_now())) {
      EXPECT_EQ(connecting->poll().value(), nullptr);
    }
    return session;
  };
  (void)offered();
  EXPECT_NE(offered(), nullptr);
}

TEST(ForkedChild, NeitherAcceptsItsParentsCallersNorConnects) {
  Process process({{{"soft"}}});
  const auto listener = process.context().listen(0).value();
  const auto connecting = process.context().connect(0, listener->handle()).value();
  EXPECT_EQ(connecting->poll().value(), nullptr);
  const pid_t child = fork();
  if (child == 0) {
    EXPECT_THROW((void)listener->accept(), std::logic_error);
    EXPECT_THROW((void)connecting->poll(), std::logic_error);
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  const auto ends = test::finish(*connecting, *listener);
  ASSERT_TRUE(ends) << ends.error().message;
  expect_carries(process.context(), process.context(), *ends);
}

TEST(ForkedChild, MayEndAContextWithBonds) {
  Process ours({{{"soft"}, {"soft"}}}), theirs({{{"soft"}, {"soft"}}});
  auto ends = connect(ours.context(), 0, theirs.context(), 0);
  ASSERT_TRUE(ends) << ends.error().message;
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    *ends = {};  // the connections share the keeper
    ours.end();
    theirs.end();
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "it hung until the alarm, or crashed";
  expect_carries(ours.context(), theirs.context(), *ends);
}

// The peer sends offers of another form, or false ones.
class ListenerUnderAttack : public testing::Test {
 protected:
  ListenerUnderAttack() {
    process_.info(0).cuda = process_.info(1).cuda = true;
    listener_ = process_.context().listen(0).value();
  }

  // The listener's answer to these bytes.
  std::string answer(const Blob& offer) {
    auto connector = BootstrapConnector::open({listener_->handle().bytes}, {}, offer,
                                              Duration::from_s(10), {}, clock_now());
    EXPECT_TRUE(connector);
    for (;;) {
      EXPECT_EQ(listener_->accept().value(), nullptr);
      const auto reply = (*connector)->poll(clock_now());
      if (!reply) return reply.error().message;
      if (*reply) return "accepted";
      sched_yield();
    }
  }

  Process process_{{{{"soft"}}, {{"roce"}}, {{"roce"}}}};
  std::unique_ptr<Listener> listener_;
};

TEST_F(ListenerUnderAttack, OffersForNicsThatWereNotAdvertisedAreRefused) {
  const std::vector<uint8_t> words(40, 7);
  // The third NIC takes no GPU memory, so it is not advertised.
  for (const uint8_t nic : {uint8_t{2}, uint8_t{3}, uint8_t{255}}) {
    EXPECT_THAT(answer(pack_lanes(std::vector<Blob>{address_offer(nic, words)})),
                HasSubstr("requests NICs that were not advertised to it"));
  }
  EXPECT_THAT(
      answer(pack_lanes(std::vector<Blob>{address_offer(0, words), address_offer(1, words)})),
      HasSubstr("requests NICs that were not advertised to it"));
  EXPECT_THAT(answer(pack_lanes(std::vector<Blob>{{}})),
              HasSubstr("requests NICs that were not advertised to it"));
  EXPECT_THAT(answer(pack_lanes(std::vector<Blob>{address_offer(1, words)})),
              HasSubstr("another form"))
      << "this NIC was advertised, and decodes the words";
}

TEST_F(ListenerUnderAttack, ARefusalIsAnErrorAndTheListenerGoesOn) {
  const Blob foreign = pack_lanes(std::vector<Blob>{{}});
  const std::string refusal = "requests NICs that were not advertised to it";
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(answer(foreign), HasSubstr(refusal));
    Result<std::unique_ptr<ReceiveConnection>> accepted;
    EXPECT_TRUE(eventually([&] { return !(accepted = listener_->accept()); }));
    EXPECT_THAT(accepted.error().message, HasSubstr(refusal));
  }
}

TEST_F(ListenerUnderAttack, TextsOfThePeerAreMadePrintable) {
  EXPECT_THAT(answer(Blob{0, 27, '[', '2', 'J'}), HasSubstr("share no kind of network: ?[2J, "));
  EXPECT_THAT(process_.lines(), ElementsAre(HasSubstr(": ?[2J, ")));
  EXPECT_THAT(answer(Blob(2 + kMaxProcessText)), HasSubstr("another form"));
}

}  // namespace
}  // namespace pacecar::test::joining_test
