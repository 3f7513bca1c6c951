#include "tests/support/profile_player.h"

#include <dlfcn.h>
#include <unistd.h>

#include <utility>

namespace pacecar::nccl {
namespace {

void logs_nothing(LogSeverity, unsigned long, const char*, int, const char*, ...) {}

}  // namespace

std::unique_ptr<ProfilePlayer> ProfilePlayer::find(void* library) {
  const void* const table = dlsym(library, "ncclProfiler_v6");
  if (table == nullptr) return nullptr;
  return std::make_unique<ProfilePlayer>(*static_cast<const ProfilerV6*>(table));
}

NcclResult ProfilePlayer::start(const Who& who) {
  who_ = who;
  return table_.init(&context_, who.communicator, &mask_, nullptr, who.nodes, who.ranks, who.rank,
                     logs_nothing);
}

NcclResult ProfilePlayer::finalize() { return table_.finalize(std::exchange(context_, nullptr)); }

void* ProfilePlayer::begin(ProfileEventV6 event) const {
  if ((static_cast<uint64_t>(mask_) & event.type) == 0) return nullptr;
  event.rank = who_.rank;
  void* handle = nullptr;
  table_.startEvent(context_, &handle, &event);
  return handle;
}

void* ProfilePlayer::start_collective(const std::string& function, size_t count,
                                      uint64_t sequence) const {
  ProfileEventV6 event{};
  event.type = kProfileCollective;
  event.collective.sequence = sequence;
  event.collective.function = function.c_str();
  event.collective.count = count;
  event.collective.datatype = "ncclFloat32";
  return begin(event);
}

void* ProfilePlayer::start_operation(void* collective, int peer, bool sending, int steps) const {
  ProfileEventV6 event{};
  event.type = kProfileProxyOp;
  event.parent = collective;
  event.proxy_op = {.pid = getpid(),
                    .channel = 0,
                    .peer = peer,
                    .steps = steps,
                    .chunk_bytes = 0,
                    .is_send = static_cast<int>(sending)};
  return begin(event);
}

void* ProfilePlayer::start_step(void* operation, int number) const {
  ProfileEventV6 event{};
  event.type = kProfileProxyStep;
  event.parent = operation;
  event.proxy_step.step = number;
  return begin(event);
}

void ProfilePlayer::change(void* step, ProfileState state, size_t bytes) const {
  if (step == nullptr) return;
  ProfileStateArgumentsV4 arguments{};
  arguments.proxy_step.bytes = bytes;
  table_.recordEventState(step, state, &arguments);
}

void ProfilePlayer::stop(void* event) const {
  if (event != nullptr) table_.stopEvent(event);
}

}  // namespace pacecar::nccl
