// Whose turn it is in shared memory, among processes of which some die.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "transport/ofi/host_turn.h"

namespace pacecar {
namespace {

HostTurn make_turn() {
  auto turn = HostTurn::make();
  EXPECT_TRUE(turn) << turn.error().message;
  return std::move(*turn);
}

HostTurn join_turn(const HostTurn& turn) {
  auto joined = HostTurn::join(turn.place());
  EXPECT_TRUE(joined) << joined.error().message;
  return std::move(*joined);
}

TEST(HostTurn, OneAtATime) {
  HostTurn own = make_turn();
  HostTurn peers = join_turn(own);
  ASSERT_EQ(own.take(), 0);
  EXPECT_EQ(peers.take(), -EAGAIN);
  own.give_back();
  ASSERT_EQ(peers.take(), 0);
  EXPECT_EQ(own.take(), -EAGAIN);
  peers.give_back();
  EXPECT_EQ(own.take(), 0);
  own.give_back();
}

TEST(HostTurn, AProcessThatDiedInsideIsToldToAllForEver) {
  HostTurn own = make_turn();
  HostTurn peers = join_turn(own);
  const pid_t child = fork();
  if (child == 0) {
    auto turn = HostTurn::join(own.place());
    _exit(turn && turn->take() == 0 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(peers.take(), -EOWNERDEAD);
    EXPECT_EQ(own.take(), -EOWNERDEAD);
  }
}

TEST(HostTurn, NobodyGoesWhereItIsClosed) {
  HostTurn own = make_turn();
  HostTurn peers = join_turn(own);
  own.close();
  EXPECT_EQ(peers.take(), -ESHUTDOWN);
  EXPECT_EQ(own.take(), -ESHUTDOWN);
}

TEST(HostTurn, WhatIsNoTurnOfALivingProcessIsRefusedWithTheCure) {
  const HostTurn own = make_turn();
  const uint32_t here = own.place().process;
  for (const HostTurn::Place place :
       {HostTurn::Place{here, 0}, HostTurn::Place{here, 100'000}, HostTurn::Place{0, 0},
        HostTurn::Place{4'000'000'000, own.place().fd}}) {
    const auto joined = HostTurn::join(place);
    ASSERT_FALSE(joined) << place.process << " " << place.fd;
    EXPECT_EQ(joined.error().code, ErrorCode::kPeer);
    EXPECT_THAT(joined.error().message, testing::HasSubstr("PID namespace"));
  }
}

}  // namespace
}  // namespace pacecar
