// Plays NCCL for a plugin's profiler: reports one communicator's collectives, the operations of its
// proxy thread, and each message, in NCCL's order.
//
// Reports only events of the plugin's activation mask. Thread rule: as the plugin's own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "net_plugin/abi/profiler.h"

namespace pacecar::nccl {

class ProfilePlayer {
 public:
  // The communicator's identity.
  struct Who {
    uint64_t communicator = 0;
    int nodes = 1;
    int ranks = 1;
    int rank = 0;
  };

  explicit ProfilePlayer(const ProfilerV6& table) : table_(table) {}
  // nullptr: the library has no profiler of version 6.
  static std::unique_ptr<ProfilePlayer> find(void* library);

  NcclResult start(const Who& who);
  NcclResult finalize();
  int activation_mask() const { return mask_; }
  void* context() const { return context_; }

  // Handles; nullptr: not recorded.
  void* start_collective(const std::string& function, size_t count, uint64_t sequence) const;
  void* start_operation(void* collective, int peer, bool sending, int steps) const;
  void* start_step(void* operation, int number) const;
  void change(void* step, ProfileState state, size_t bytes = 0) const;
  void stop(void* event) const;

 private:
  void* begin(ProfileEventV6 event) const;

  const ProfilerV6 table_;
  Who who_;
  void* context_ = nullptr;
  int mask_ = 0;
};

}  // namespace pacecar::nccl
