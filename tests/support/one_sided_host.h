// Plays NCCL's proxy threads for a plugin's one-sided operations: one rank of one collective
// communicator, with NCCL's habits.
//
// Failures are thrown as HostError. Thread rule: as the plugin.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "net_plugin/host/host.h"
#include "tests/support/any_one_sided.h"

namespace pacecar::nccl {

class OneSidedHost {
 public:
  // Uses the library that `host` has loaded, and listens on that device. `host` outlives this.
  OneSidedHost(const Host& host, const std::string& symbol, int device = 0);
  ~OneSidedHost();  // closes all open objects
  OneSidedHost(const OneSidedHost&) = delete;
  OneSidedHost& operator=(const OneSidedHost&) = delete;

  const AnyOneSided& table() const { return *table_; }
  void* context() const { return context_; }
  void* collective() const { return collective_; }
  void* puts() const { return puts_; }  // the context of the operations
  const HandleBytes& handle() const { return handle_; }

  // Connects all ranks in one call, `handles` by rank, and makes the contexts.
  NcclResult try_join(std::vector<HandleBytes> handles, int rank, int contexts = 2);
  void join(std::vector<HandleBytes> handles, int rank);
  void leave();

  void* share(std::span<uint8_t> memory, int type = kPointerHost) const;
  void unshare(void* window) const;

  // The started request; never NULL.
  void* put(const WindowPlace& from, size_t size, const WindowPlace& to, int rank,
            int number = 0) const;
  void* put(const WindowPlace& from, size_t size, const WindowPlace& to, int rank,
            const SignalPart& signal, int number = 0) const;
  void* get(const WindowPlace& from, size_t size, const WindowPlace& to, int rank) const;
  void* flush(void* window, int rank) const;
  // Waits until all are done.
  void finish(const std::vector<void*>& requests) const;
  // Waits until the request is done or has failed.
  NcclResult result_of(void* request) const;
  // The same of a put that may be refused.
  NcclResult result_of_put(const WindowPlace& from, size_t size, const WindowPlace& to,
                           int rank) const;
  // Waits until the word has this value, as a GPU waits for a signal while NCCL's thread polls.
  void await(const uint64_t& word, uint64_t value) const;
  bool has_error() const;

 private:
  std::unique_ptr<AnyOneSided> table_;
  HandleBytes handle_{};
  void* context_ = nullptr;
  void* listening_ = nullptr;
  void* collective_ = nullptr;
  void* puts_ = nullptr;
};

}  // namespace pacecar::nccl
