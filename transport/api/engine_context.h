// The Context of a process: its NICs, each with an engine, and bonds of several NICs. Any thread.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/api/bond/keeper.h"
#include "transport/api/flushes.h"
#include "transport/api/joining.h"
#include "transport/api/pacecar.hpp"
#include "transport/api/state_document.h"
#include "transport/base/params.h"
#include "transport/engine/clock.h"
#include "transport/engine/engine.h"
#include "transport/state/state_server.h"

namespace pacecar {

class EngineContext final : public Context {
 public:
  using Group = std::vector<RunningNic>;  // The NICs of one device.

  // A group has at most kMaxLanes NICs, whose identities have consecutive last bytes.
  EngineContext(Params params, std::vector<Group> groups, LogSink log, bootstrap::ClusterKey key,
                std::vector<Page> pages = {});

  std::span<const NicInfo> nics() const override { return {infos_.data(), known_}; }
  Result<size_t> bond(std::span<const size_t> nics) override;
  std::string banner() const override;

  Result<std::unique_ptr<Listener>> listen(size_t nic) override;
  Result<std::unique_ptr<Connecting>> connect(size_t nic, const Handle& handle,
                                              const ConnectOptions& options) override;
  void expect(uint32_t senders) override;
  Result<const Memory*> register_memory(size_t nic, const MemoryRange& range) override;
  Result<void> deregister_memory(size_t nic, const Memory* memory) override;

  Result<std::optional<FlushId>> start_flush(size_t nic, const Memory* memory,
                                             const void* data) override;
  Result<bool> flushed(size_t /*nic*/, FlushId flush) override { return flushes_.done(flush); }
  void progress(size_t nic) override;
  void rest(size_t nic) override;
  Statistics statistics(size_t nic) const override;

 private:
  Engine& next_engine(size_t nic);
  void serve_state();
  StatePages state_pages() const;
  ProcessState state() const;
  NicState state_of(const RunningNic& nic) const;

  tl::unexpected<Error> no_such_nic(size_t nic) const;
  OwnDevice device(size_t nic) const;
  OwnDevices own(size_t nic) const;
  static NicInfo describe(const Group& group);
  static void release(const Group& group, std::span<const MemoryRegion> regions);
  void add_statistics(const RunningNic& nic, Statistics& sum) const;

  const Params params_;
  const LogSink log_;
  const std::vector<Page> pages_;
  const bootstrap::ClusterKey key_;
  const std::shared_ptr<BondKeeper> keeper_{new BondKeeper, [](BondKeeper* keeper) {
                                              if (!keeper->inherited()) delete keeper;
                                            }};
  const std::shared_ptr<Notices> notices_ = std::make_shared<Notices>();
  std::mutex bonding_;
  std::vector<Group> groups_;   // the groups of PACECAR_NICS, then bonds; they never move
  std::vector<NicInfo> infos_;  // of each group; they never move
  const size_t own_;            // the number of groups of PACECAR_NICS
  std::atomic<size_t> known_;   // the number of complete groups
  std::atomic<size_t> turn_{0};
  Flushes flushes_;
  const ProcessName process_ = own_process();
  const Instant opened_ = clock_now();
  std::unique_ptr<StateServer> state_server_;  // the last member, as it calls state()
};

}  // namespace pacecar
