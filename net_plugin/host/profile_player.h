// Plays NCCL for a plugin's profiler: reports one communicator's collectives, the operations of its
// proxy thread, and each message, in NCCL's order. Steps are the profiler handles of isend and
// irecv, so that the plugin can report its own requests.
//
// Reports only events of the plugin's activation mask. Thread rule: as the plugin's own.
#pragma once

#include <memory>
#include <string>

#include "net_plugin/abi/any_profiler.h"

namespace pacecar::nccl {

class ProfilePlayer {
 public:
  // Of an operation. Stays where it is from its start to its stop: the plugin is given its address.
  struct Step {
    const ProfilePlayer* player = nullptr;
    void* event = nullptr;
  };

  // nullptr: the library has no profiler (of that version).
  static std::unique_ptr<ProfilePlayer> find(void* library);
  static std::unique_ptr<ProfilePlayer> find(void* library, int version);
  // For the net plugin's init.
  static NcclResult callback(void** event, int type, void* step, int64_t plugin_id, void* data);

  NcclResult start(const AnyProfiler::Who& who);
  NcclResult finalize();
  int activation_mask() const { return mask_; }
  const AnyProfiler& table() const { return *table_; }
  void* context() const { return context_; }

  // Handles; nullptr: not recorded.
  void* start_collective(const std::string& function, size_t count, uint64_t sequence) const;
  void* start_operation(void* collective, int peer, bool sending, int steps) const;
  void start_step(void* operation, int number, Step& step) const;
  void change(const Step& step, ProfileState state, size_t bytes = 0) const;
  void stop_step(Step& step) const;
  void stop(void* event) const;

 private:
  explicit ProfilePlayer(std::unique_ptr<AnyProfiler> table) : table_(std::move(table)) {}
  void* begin(const ProfileEventV6& event) const;

  std::unique_ptr<AnyProfiler> table_;
  AnyProfiler::Who who_;
  void* context_ = nullptr;
  int mask_ = 0;
};

}  // namespace pacecar::nccl
