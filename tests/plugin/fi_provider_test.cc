// The libfabric provider through libfabric itself: messages between processes, also through loss.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "tests/support/fi_world.h"
#include "tests/support/tcp.h"
#include "transport/base/prng.h"

namespace pacecar::test::fi_provider_test {
namespace {

TEST(FiProvider, TaggedMessagesOfAllSizesArriveBothWays) {
  with_two([](World& world) {
    for (const size_t size : kSizes) {
      if (world.first()) send_tagged(world, pattern(size, size), size);
      expect_tagged(world, pattern(size, size), size);
      if (!world.first()) send_tagged(world, pattern(size, size), size);
    }
  });
}

// All messages are sent before the first receive is posted; the receives are in reverse order.
TEST(FiProvider, UnexpectedMessagesAreReceivedInReverseOrder) {
  with_two([](World& world) {
    std::vector<std::vector<uint8_t>> messages;
    for (const size_t size : kSizes) messages.push_back(pattern(size, size + 5));
    if (world.first()) {
      for (size_t i = 0; i < messages.size(); ++i) {
        world.end.until_taken([&] {
          return fi_tsend(world.end.endpoint, messages[i].data(), messages[i].size(), nullptr,
                          world.other(), i, &messages[i]);
        });
      }
      world.meet();
      for (auto& message : messages) EXPECT_EQ(world.end.outcome_of(&message).error, 0);
    } else {
      world.meet();
      for (size_t i = messages.size(); i > 0; --i) expect_tagged(world, messages[i - 1], i - 1);
    }
  });
}

// Open MPI posts all receives of a program before it can send, and repeats one that is refused.
TEST(FiProvider, ThousandsOfReceivesAndSendsMayBePostedAtOnce) {
  with_two([](World& world) {
    constexpr uint64_t kCount = 5000;
    std::vector<uint64_t> sent(kCount, 7);
    std::vector<uint64_t> received(kCount);
    for (uint64_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(fi_trecv(world.end.endpoint, &received[i], sizeof(uint64_t), nullptr,
                         FI_ADDR_UNSPEC, i, 0, &received[i]),
                0)
          << i;
    }
    world.meet();
    for (uint64_t i = 0; i < kCount; ++i) {
      world.end.until_taken([&] {
        return fi_tsend(world.end.endpoint, &sent[i], sizeof(uint64_t), nullptr, world.other(), i,
                        &sent[i]);
      });
    }
    for (uint64_t i = 0; i < kCount; ++i) {
      EXPECT_EQ(world.end.outcome_of(&received[i]).error, 0);
      EXPECT_EQ(world.end.outcome_of(&sent[i]).error, 0);
    }
    EXPECT_EQ(received, sent);
  });
}

TEST(FiProvider, RemoteDataAndTruncationAreReported) {
  with_two([](World& world) {
    for (const size_t size : {size_t{100}, size_t{200000}}) {
      const auto bytes = pattern(size, 9);
      std::vector<uint8_t> place(size / 2);
      int context = 0;
      if (world.first()) {
        world.end.until_taken([&] {
          return fi_senddata(world.end.endpoint, bytes.data(), size, nullptr, 0xabcdef0123456789,
                             world.other(), &context);
        });
        EXPECT_EQ(world.end.outcome_of(&context).error, 0);
      } else {
        world.end.until_taken([&] {
          return fi_recv(world.end.endpoint, place.data(), place.size(), nullptr, FI_ADDR_UNSPEC,
                         &context);
        });
        const FiOutcome outcome = world.end.outcome_of(&context);
        EXPECT_EQ(outcome.error, FI_ETRUNC);
        EXPECT_EQ(outcome.overflow, size - place.size());
        EXPECT_EQ(outcome.data, 0xabcdef0123456789);
        EXPECT_TRUE(std::equal(place.begin(), place.end(), bytes.begin()));
      }
    }
  });
}

TEST(FiProvider, AnInjectedBufferMayBeReusedAtOnce) {
  with_two([](World& world) {
    constexpr uint64_t kCount = 500;
    if (world.first()) {
      for (uint64_t i = 0; i < kCount; ++i) {
        uint64_t value = i;
        world.end.until_taken(
            [&] { return fi_tinject(world.end.endpoint, &value, sizeof value, world.other(), 1); });
        value = ~uint64_t{0};
      }
      EXPECT_EQ(fi_cntr_wait(world.end.sent, kCount, 20000), 0);
    } else {
      for (uint64_t i = 0; i < kCount; ++i) {
        uint64_t value = 0;
        world.end.until_taken([&] {
          return fi_trecv(world.end.endpoint, &value, sizeof value, nullptr, FI_ADDR_UNSPEC, 0,
                          ~uint64_t{0}, &value);
        });
        EXPECT_EQ(world.end.outcome_of(&value).error, 0);
        EXPECT_EQ(value, i);
      }
    }
  });
}

// A program that computes after its sends makes no progress; its messages must arrive meanwhile.
TEST(FiProvider, MessagesArriveWhileTheSenderMakesNoProgress) {
  with_two([](World& world) {
    constexpr uint64_t kCount = 100;
    const auto bytes = pattern(8, 1);
    if (world.first()) {
      send_tagged(world, bytes, kCount);
      for (uint64_t i = 0; i < kCount; ++i) {
        world.end.until_taken([&] {
          return fi_tinject(world.end.endpoint, bytes.data(), bytes.size(), world.other(), i);
        });
      }
      world.rank.barrier();
    } else {
      expect_tagged(world, bytes, kCount);
      for (uint64_t i = 0; i < kCount; ++i) expect_tagged(world, bytes, i);
      world.rank.barrier();
    }
  });
}

// fi_cq_read makes no progress right after a call that returned a completion, so a caller that
// reads until the queue is empty is not held up. The call after that makes progress again. On a
// busy machine the provider's own thread may make progress between the two: once is enough.
TEST(FiProvider, TheReadAfterACompletionMakesNoProgress) {
  with_two([](World& world) {
    constexpr int kTries = 10;
    const auto bytes = pattern(8, 1);
    if (world.first()) {
      for (int i = 0; i < 2 * kTries; ++i) {
        send_tagged(world, bytes, 1);
        world.rank.barrier();
      }
      return;
    }
    fi_cq_tagged_entry entry{};
    const auto read = [&] { return fi_cq_read(world.end.completions, &entry, 1); };
    int empty = 0;
    for (int i = 0; i < kTries; ++i) {
      std::array<std::vector<uint8_t>, 2> places{pattern(8, 2), pattern(8, 3)};
      for (auto& place : places) {
        world.end.until_taken([&] {
          return fi_trecv(world.end.endpoint, place.data(), place.size(), nullptr, FI_ADDR_UNSPEC,
                          1, 0, &place);
        });
      }
      while (read() == -FI_EAGAIN) continue;
      EXPECT_TRUE(entry.op_context == &places[0] && places[0] == bytes);
      world.rank.barrier();
      world.rank.barrier();  // the second message has been sent
      if (read() == -FI_EAGAIN) {
        ++empty;
        while (read() == -FI_EAGAIN) continue;
      }
      EXPECT_TRUE(entry.op_context == &places[1] && places[1] == bytes);
    }
    EXPECT_GT(empty, 0);
  });
}

TEST(FiProvider, MessagesInSeveralPiecesArrive) {
  with_two([](World& world) {
    for (const size_t size : {size_t{900}, size_t{180000}}) {
      auto bytes = pattern(size, 3);
      std::vector<uint8_t> place(size);
      int context = 0;
      const auto pieces = [&](std::vector<uint8_t>& all, size_t first) {
        return std::vector<iovec>{{all.data(), first}, {all.data() + first, size - first}};
      };
      if (world.first()) {
        const auto iov = pieces(bytes, size / 3);
        world.end.until_taken([&] {
          return fi_tsendv(world.end.endpoint, iov.data(), nullptr, 2, world.other(), 4, &context);
        });
        EXPECT_EQ(world.end.outcome_of(&context).error, 0);
      } else {
        const auto iov = pieces(place, size / 2);
        world.end.until_taken([&] {
          return fi_trecvv(world.end.endpoint, iov.data(), nullptr, 2, world.other(), 4, 0,
                           &context);
        });
        EXPECT_EQ(world.end.outcome_of(&context).error, 0);
        EXPECT_TRUE(place == bytes);
      }
    }
  });
}

TEST(FiProvider, OneMultiReceiveBufferTakesManyMessages) {
  with_two([](World& world) {
    constexpr size_t kMessages = 20;
    constexpr size_t kBytes = 100;
    if (world.first()) {
      world.meet();
      for (size_t i = 0; i < kMessages; ++i) {
        const auto bytes = pattern(kBytes, i);
        world.end.until_taken(
            [&] { return fi_inject(world.end.endpoint, bytes.data(), kBytes, world.other()); });
      }
      return;
    }
    std::vector<uint8_t> place(kMessages * kBytes);
    const iovec iov{place.data(), place.size()};
    const fi_msg message{
        .msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = &place};
    must(fi_recvmsg(world.end.endpoint, &message, FI_MULTI_RECV), "fi_recvmsg");
    world.meet();
    for (size_t i = 0; i < kMessages; ++i) {
      const FiOutcome outcome = world.end.next();
      EXPECT_EQ(outcome.length, kBytes);
      EXPECT_EQ((outcome.flags & FI_MULTI_RECV) != 0, i + 1 == kMessages);
      EXPECT_TRUE(std::equal(place.begin() + static_cast<ptrdiff_t>(i * kBytes),
                             place.begin() + static_cast<ptrdiff_t>((i + 1) * kBytes),
                             pattern(kBytes, i).begin()));
    }
  });
}

TEST(FiProvider, PeekClaimAndDiscardFindTheirMessage) {
  with_two([](World& world) {
    const auto bytes = pattern(40000, 1);
    if (world.first()) {
      for (uint64_t tag = 1; tag <= 2; ++tag) send_tagged(world, bytes, tag);
      return;
    }
    int context = 0;
    const auto look = [&](uint64_t tag, uint64_t flags) {
      const fi_msg_tagged message{.addr = world.other(), .tag = tag, .context = &context};
      must(fi_trecvmsg(world.end.endpoint, &message, flags), "fi_trecvmsg");
      return world.end.outcome_of(&context);
    };
    EXPECT_EQ(look(7, FI_PEEK).error, FI_ENOMSG);
    while (look(1, FI_PEEK).error == FI_ENOMSG) {
    }
    EXPECT_EQ(look(1, FI_PEEK | FI_DISCARD).length, bytes.size());
    EXPECT_EQ(look(1, FI_PEEK).error, FI_ENOMSG);
    while (look(2, FI_PEEK | FI_CLAIM).error == FI_ENOMSG) {
    }
    EXPECT_EQ(look(2, FI_PEEK).error, FI_ENOMSG);
    std::vector<uint8_t> place(bytes.size());
    const iovec iov{place.data(), place.size()};
    const fi_msg_tagged message{
        .msg_iov = &iov, .iov_count = 1, .addr = world.other(), .tag = 2, .context = &context};
    must(fi_trecvmsg(world.end.endpoint, &message, FI_CLAIM), "fi_trecvmsg");
    EXPECT_EQ(world.end.outcome_of(&context).error, 0);
    EXPECT_TRUE(place == bytes);
  });
}

TEST(FiProvider, ACancelledReceiveIsReported) {
  with_two([](World& world) {
    int context = 0;
    uint64_t place = 0;
    must(fi_trecv(world.end.endpoint, &place, sizeof place, nullptr, world.other(), 1, 0, &context),
         "fi_trecv");
    must(fi_cancel(&world.end.endpoint->fid, &context), "fi_cancel");
    EXPECT_EQ(world.end.outcome_of(&context).error, FI_ECANCELED);
    EXPECT_EQ(fi_cancel(&world.end.endpoint->fid, &context), -FI_ENOENT);
  });
}

TEST(FiProvider, AllToAllIncludingTheSenderItselfArrives) {
  expect_processes_pass(6, [](Rank& rank) {
    World world(rank, {.vector = FI_AV_MAP});
    const auto size = static_cast<size_t>(rank.size());
    for (const size_t bytes : {size_t{24}, size_t{600000}}) {
      std::vector<std::vector<uint8_t>> in(size, std::vector<uint8_t>(bytes));
      std::vector<std::vector<uint8_t>> out;
      const auto me = static_cast<uint64_t>(rank.rank());
      for (size_t peer = 0; peer < size; ++peer) {
        out.push_back(pattern(bytes, me * 100 + peer));
        world.end.until_taken([&] {
          return fi_trecv(world.end.endpoint, in[peer].data(), bytes, nullptr, world.peers[peer], 0,
                          ~uint64_t{0}, &in[peer]);
        });
      }
      for (size_t peer = 0; peer < size; ++peer) {
        world.end.until_taken([&] {
          return fi_tsend(world.end.endpoint, out[peer].data(), bytes, nullptr, world.peers[peer],
                          me, &out[peer]);
        });
      }
      for (size_t peer = 0; peer < size; ++peer) {
        EXPECT_EQ(world.end.outcome_of(&in[peer]).error, 0);
        EXPECT_EQ(world.end.outcome_of(&out[peer]).error, 0);
        EXPECT_TRUE(in[peer] == pattern(bytes, peer * 100 + me));
      }
    }
    world.meet();
  });
}

// Random messages both ways; each receive gets the message of the same step.
void random_traffic(World& world, uint64_t seed) {
  constexpr int kSteps = 300;
  Prng prng(seed);  // the same on both sides
  std::vector<std::vector<uint8_t>> out;
  std::vector<std::vector<uint8_t>> in;
  std::vector<std::vector<uint8_t>> expected;
  out.reserve(kSteps);
  in.reserve(kSteps);
  for (int step = 0; step < kSteps; ++step) {
    const bool from_first = prng.below(2) == 0;
    const size_t size = prng.below(4) == 0 ? prng.below(800000) : prng.below(3000);
    const uint64_t tag = prng.below(4);
    const bool late = prng.below(2) == 0;
    const auto bytes = pattern(size, seed + static_cast<uint64_t>(step));
    if (from_first == world.first()) {
      out.push_back(bytes);
      world.end.until_taken([&] {
        return fi_tsend(world.end.endpoint, out.back().data(), size, nullptr, world.other(),
                        tag << 32 | static_cast<uint64_t>(step), &out.back());
      });
    } else {
      for (int i = 0; late && i < 20; ++i) world.end.progress();
      in.emplace_back(size);
      expected.push_back(bytes);
      world.end.until_taken([&] {
        return fi_trecv(world.end.endpoint, in.back().data(), size, nullptr, FI_ADDR_UNSPEC,
                        static_cast<uint64_t>(step), 0xffffffff00000000, &in.back());
      });
    }
  }
  for (auto& message : out) EXPECT_EQ(world.end.outcome_of(&message).error, 0);
  for (size_t i = 0; i < in.size(); ++i) {
    EXPECT_EQ(world.end.outcome_of(&in[i]).error, 0);
    EXPECT_TRUE(in[i] == expected[i]);
  }
}

TEST(FiProvider, RandomTrafficArrives) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    with_two([&](World& world) { random_traffic(world, seed); });
  }
}

TEST(FiProvider, RandomTrafficArrivesThroughLoss) {
  setenv("PACECAR_FAULT", "loss=0.04,duplicate=0.04,reorder=0.06", 1);
  setenv("PACECAR_EXPERT_CMA", "off", 1);  // all frames cross the network
  with_two([](World& world) { random_traffic(world, 11); });
  unsetenv("PACECAR_FAULT");
  unsetenv("PACECAR_EXPERT_CMA");
}

TEST(FiProvider, ASendToAnAddressWithoutAListenerFails) {
  expect_processes_pass(1, [](Rank&) {
    FiEnd end;
    const TcpNobody nobody;
    const fi_addr_t address = end.add(&nobody.address());
    int context = 0;
    end.until_taken([&] { return fi_tsend(end.endpoint, "x", 1, nullptr, address, 1, &context); });
    EXPECT_EQ(end.outcome_of(&context).error, FI_ECONNREFUSED);
  });
}

// A second queue for a direction that has one is refused, and nothing of the call takes effect.
TEST(FiProvider, ARefusedCompletionQueueIsNotInUse) {
  expect_processes_pass(1, [](Rank&) {
    const FiEnd end;
    fid_ep* endpoint = nullptr;
    must(fi_endpoint(end.domain, end.info(), &endpoint, nullptr), "fi_endpoint");
    must(fi_ep_bind(endpoint, &end.completions->fid, FI_RECV), "fi_ep_bind");
    fi_cq_attr attr{.format = FI_CQ_FORMAT_TAGGED};
    fid_cq* queue = nullptr;
    must(fi_cq_open(end.domain, &attr, &queue, nullptr), "fi_cq_open");
    EXPECT_EQ(fi_ep_bind(endpoint, &queue->fid, FI_TRANSMIT | FI_RECV), -FI_EINVAL);
    EXPECT_EQ(fi_close(&queue->fid), 0);
    EXPECT_EQ(fi_ep_bind(endpoint, &end.completions->fid, FI_TRANSMIT), 0);
    EXPECT_EQ(fi_close(&endpoint->fid), 0);
  });
}

TEST(FiProvider, ASourceAddressIsOneOfThisHost) {
  expect_processes_pass(1, [](Rank&) {
    fi_info* const hints = fi_allocinfo();
    hints->fabric_attr->prov_name = strdup("pacecar");
    for (const auto& [node, result] : {std::pair("127.0.0.5", 0), {"203.0.113.1", -FI_ENODATA}}) {
      fi_info* info = nullptr;
      EXPECT_EQ(fi_getinfo(FI_VERSION(1, 17), node, "7000", FI_SOURCE, hints, &info), result);
      if (info != nullptr) fi_freeinfo(info);
    }
    fi_freeinfo(hints);
  });
}

TEST(FiProvider, NicsOfLibfabricAreNotOffered) {
  expect_processes_pass(1, [](Rank&) {
    const auto found = [](const char* nics) {
      setenv("PACECAR_NICS", nics, 1);
      fi_info* const hints = fi_allocinfo();
      hints->fabric_attr->prov_name = strdup("pacecar");
      fi_info* info = nullptr;
      const int result = fi_getinfo(FI_VERSION(1, 17), nullptr, nullptr, 0, hints, &info);
      const std::string name = result == 0 ? info->domain_attr->name : "";
      fi_freeinfo(hints);
      if (info != nullptr) fi_freeinfo(info);
      return name;
    };
    EXPECT_EQ(found("ofi:tcp"), "");
    EXPECT_EQ(found("ofi:tcp,soft:udp:lo"), "soft:udp:lo");
  });
}

}  // namespace
}  // namespace pacecar::test::fi_provider_test
