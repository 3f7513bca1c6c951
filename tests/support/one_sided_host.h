// Plays NCCL's proxy threads for a plugin's one-sided operations: one rank of one collective
// communicator, with NCCL's habits.
//
// What cannot go on throws HostError. Thread rule: as the plugin's own.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "net_plugin/host/host.h"
#include "tests/support/any_one_sided.h"

namespace pacecar::nccl {

class OneSidedHost {
 public:
  // Of the library that `host`, which outlives it, has loaded. Listens on that device.
  OneSidedHost(const Host& host, const std::string& symbol, int device = 0);
  ~OneSidedHost();  // what is still open
  OneSidedHost(const OneSidedHost&) = delete;
  OneSidedHost& operator=(const OneSidedHost&) = delete;

  const AnyOneSided& table() const { return *table_; }
  void* context() const { return context_; }
  void* collective() const { return collective_; }
  void* puts() const { return puts_; }  // the context of the operations
  const HandleBytes& handle() const { return handle_; }

  // One call; `handles` by rank. Then contexts.
  NcclResult try_join(std::vector<HandleBytes> handles, int rank, int contexts = 2);
  void join(std::vector<HandleBytes> handles, int rank);
  void leave();

  void* share(std::span<uint8_t> memory, int type = kPointerHost) const;
  void unshare(void* window) const;

  // Started; never NULL.
  void* put(const WindowPlace& from, size_t size, const WindowPlace& to, int rank,
            int number = 0) const;
  void* put(const WindowPlace& from, size_t size, const WindowPlace& to, int rank,
            const SignalPart& signal, int number = 0) const;
  void* get(const WindowPlace& from, size_t size, const WindowPlace& to, int rank) const;
  void* flush(void* window, int rank) const;
  // Until all are done.
  void finish(const std::vector<void*>& requests) const;
  // Until it is done or has failed.
  NcclResult result_of(void* request) const;
  // Until the word has this value, as a GPU waits for a signal while NCCL's thread goes on.
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
