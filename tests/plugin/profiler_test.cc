// Every version of the profiler's tables, with NCCL's calls and with wrong ones; and the profile
// that the state socket serves.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <nlohmann/json.hpp>

#include "net_plugin/host/buffer.h"
#include "tests/plugin/plugin_test.h"
#include "tests/support/any_profiler.h"
#include "tests/support/profile_player.h"
#include "tests/support/read_state.h"
#include "tests/support/scratch_directory.h"

namespace pacecar::test::profiler_test {
namespace {

using nccl::NcclResult;
using nccl::ProfilePlayer;
using nccl::ProfileState;
using Json = nlohmann::json;

constexpr ProfilePlayer::Who kWho{.communicator = 0xfeed, .nodes = 2, .ranks = 2, .rank = 1};

nccl::ProfilerV6 table_of(int version) {
  void* const library = dlopen(kPluginPath, RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(library, nullptr) << dlerror();
  const nccl::ProfilerV6 table = nccl::find_profiler(library, version);
  EXPECT_STREQ(table.name, "Pacecar") << "version " << version;
  return table;
}

std::unique_ptr<ProfilePlayer> player_of(int version) {
  return std::make_unique<ProfilePlayer>(table_of(version));
}

// The profile that the only process with a state socket in `folder` serves.
Json profile_of(const ScratchDirectory& folder) {
  const auto directory = StateDirectory::find(folder.path());
  if (!directory) throw HostError(directory.error().message);
  const auto sockets = directory->sockets();
  if (sockets.size() != 1) throw HostError("not one socket");
  const auto page = read_state(*directory, sockets[0], Duration::from_s(60), kStateProfile);
  if (!page) throw HostError(page.error().message);
  return Json::parse(*page);
}

void send_one_message(const FakeNcclHost& host, const ProfilePlayer& player) {
  const Ends ends = host.connect_self();
  Buffer from(host, ends.send, 4096);
  Buffer to(host, ends.receive, 4096);
  void* const collective = player.start_collective("AllReduce", 1024, 7);
  void* const sending = player.start_operation(collective, 0, true, 1);
  void* const receiving = player.start_operation(collective, 0, false, 1);
  player.stop(collective);
  void* const receive_step = player.start_step(receiving, 0);
  void* const send_step = player.start_step(sending, 0);
  player.change(send_step, ProfileState::kSendGpuWait);
  player.change(send_step, ProfileState::kSendPeerWait);
  void* const receive = host.receive(ends.receive, to.whole());
  player.change(receive_step, ProfileState::kReceiveWait);
  void* const send = host.send(ends.send, from.whole());
  player.change(send_step, ProfileState::kSendWait, 4096);
  EXPECT_EQ(host.finish(receive, send), 4096);
  player.change(receive_step, ProfileState::kReceiveGpuWait, 4096);
  player.stop(send_step);
  player.stop(receive_step);
  player.stop(sending);
  player.stop(receiving);
  from.deregister();
  to.deregister();
  host.close(ends);
}

TEST(Profiler, EveryVersionRecordsACollective) {
  for (int version = nccl::kOldestProfiler; version <= nccl::kNewestProfiler; ++version) {
    expect_processes_pass(1, [version](Rank&) {
      const ScratchDirectory folder;
      setenv("PACECAR_STATE_DIR", folder.path().c_str(), 1);
      const auto player = player_of(version);
      ASSERT_EQ(player->start(kWho), NcclResult::kSuccess);
      const auto host = start_host();
      send_one_message(*host, *player);

      const Json profile = profile_of(folder);
      ASSERT_EQ(profile["communicators"].size(), 1U);
      const Json& one = profile["communicators"][0];
      EXPECT_EQ(one["communicator"], "000000000000feed");
      EXPECT_EQ(one["rank"], 1);
      EXPECT_EQ(one["ranks"], 2);
      ASSERT_EQ(one["operations"].size(), 3U);
      const Json& collective = one["operations"][0];
      EXPECT_EQ(collective[2], 4) << "AllReduce";
      EXPECT_EQ(collective[3], 7) << "ncclFloat32";
      EXPECT_EQ(collective[7], 7) << "sequence number";
      EXPECT_EQ(collective[8], 1024);
      EXPECT_GT(collective[11], collective[10]);
      EXPECT_EQ(one["totals"]["bytes_sent"], 4096);
      ASSERT_EQ(one["steps"].size(), 2U);
      EXPECT_EQ(player->finalize(), NcclResult::kSuccess);
      EXPECT_EQ(profile_of(folder)["communicators"].size(), 0U);
    });
  }
}

TEST(Profiler, EveryVersionToleratesWrongCalls) {
  for (int version = nccl::kOldestProfiler; version <= nccl::kNewestProfiler; ++version) {
    expect_processes_pass(1, [version](Rank&) {
      const nccl::ProfilerV6 table = table_of(version);
      const auto player = std::make_unique<ProfilePlayer>(table);
      nccl::ProfileStateArgumentsV4 state{};
      state.proxy_step.bytes = 1;
      nccl::ProfileEventV6 event{};
      event.type = nccl::kProfileCollective;
      event.collective.function = "AllReduce";
      void* handle = nccl::kGarbage;
      for (void* const context : {static_cast<void*>(nullptr), nccl::kGarbage}) {
        EXPECT_EQ(table.startEvent(context, &handle, &event), NcclResult::kSuccess);
        EXPECT_EQ(handle, nullptr) << "before init, and with an unknown context";
      }
      ASSERT_EQ(player->start(kWho), NcclResult::kSuccess);
      event.type = 0;
      handle = nccl::kGarbage;
      EXPECT_EQ(table.startEvent(player->context(), &handle, &event), NcclResult::kSuccess);
      EXPECT_EQ(handle, nullptr) << "an event without a type";
      event.type = nccl::kProfileProxyOp;
      event.proxy_op.pid = getpid() + 1;
      EXPECT_EQ(table.startEvent(player->context(), &handle, &event), NcclResult::kSuccess);
      EXPECT_EQ(handle, nullptr) << "another process's operation";
      void* const collective = player->start_collective("No such operation", 1, 0);
      EXPECT_NE(collective, nullptr);
      for (void* const wrong :
           {static_cast<void*>(nullptr), nccl::kGarbage, player->context(), collective}) {
        EXPECT_EQ(table.recordEventState(wrong, static_cast<ProfileState>(999), &state),
                  NcclResult::kSuccess);
        EXPECT_EQ(table.recordEventState(wrong, ProfileState::kSendWait, &state),
                  NcclResult::kSuccess);
        EXPECT_EQ(table.stopEvent(wrong), NcclResult::kSuccess);
        EXPECT_EQ(table.stopEvent(wrong), NcclResult::kSuccess) << "twice";
      }
      void* const context = player->context();
      EXPECT_EQ(table.finalize(context), NcclResult::kSuccess);
      EXPECT_EQ(table.finalize(context), NcclResult::kSuccess) << "twice";
      EXPECT_EQ(table.finalize(nccl::kGarbage), NcclResult::kSuccess);
      EXPECT_EQ(table.stopEvent(collective), NcclResult::kSuccess) << "after finalize";
      EXPECT_EQ(player->start_collective("AllReduce", 1, 0), nullptr);
    });
  }
}

TEST(Profiler, AForkedChildRecordsItsOwnOperations) {
  expect_processes_pass(1, [](Rank&) {
    const auto player = player_of(nccl::kNewestProfiler);
    ASSERT_EQ(player->start(kWho), NcclResult::kSuccess);
    const auto records = [&] { return player->start_operation(nullptr, 0, true, 1) != nullptr; };
    ASSERT_TRUE(records());
    const pid_t child = fork();
    if (child == 0) _exit(records() ? 0 : 1);
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  });
}

TEST(Profiler, DisabledProfilerRequestsNoEvents) {
  for (int version = nccl::kOldestProfiler; version <= nccl::kNewestProfiler; ++version) {
    expect_processes_pass(1, [version](Rank&) {
      setenv("PACECAR_PROFILER", "off", 1);
      const auto player = player_of(version);
      ASSERT_EQ(player->start(kWho), NcclResult::kSuccess);
      EXPECT_EQ(player->activation_mask(), 0);
      EXPECT_EQ(player->context(), nullptr);
      EXPECT_EQ(player->finalize(), NcclResult::kSuccess);
    });
  }
}

TEST(Profiler, KernelEventsAreNotRequested) {
  expect_processes_pass(1, [](Rank&) {
    const auto player = player_of(nccl::kNewestProfiler);
    ASSERT_EQ(player->start(kWho), NcclResult::kSuccess);
    EXPECT_NE(player->activation_mask() & nccl::kProfileProxyStep, 0);
    EXPECT_EQ(player->activation_mask() & nccl::kProfileKernelChannel, 0);
  });
}

}  // namespace
}  // namespace pacecar::test::profiler_test
