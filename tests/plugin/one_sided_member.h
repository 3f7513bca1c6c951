// A rank of a test of one-sided operations: the plugin loaded, all ranks joined.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/plugin/plugin_test.h"
#include "tests/support/one_sided_host.h"

namespace pacecar::test {

class Member {
 public:
  Member(Rank& rank, const std::string& symbol, size_t nics = SIZE_MAX)
      : rank_(rank), net_(start_host(nics)), host_(*net_, symbol_if_named(symbol)) {
    std::vector<HandleBytes> handles(static_cast<size_t>(rank.size()));
    for (int peer = 0; peer < rank.size(); ++peer) {
      if (peer != rank.rank()) rank.give(peer, host_.handle());
    }
    for (int peer = 0; peer < rank.size(); ++peer) {
      handles[static_cast<size_t>(peer)] = peer == rank.rank() ? host_.handle() : rank.take(peer);
    }
    host_.join(std::move(handles), rank.rank());
  }

  const nccl::OneSidedHost* operator->() const { return &host_; }
  nccl::OneSidedHost& host() { return host_; }
  Rank& rank() const { return rank_; }
  // NCCL's progress thread keeps running meanwhile.
  void barrier() const { rank_.barrier(); }
  // Puts to a rank that is about to die until one fails. Puts before its death succeed.
  nccl::NcclResult first_failure(nccl::WindowPlace place, size_t bytes, int rank) const {
    auto result = nccl::NcclResult::kSuccess;
    poll_until("a put that fails", [&] {
      result = host_.result_of_put(place, bytes, place, rank);
      return result != nccl::NcclResult::kSuccess;
    });
    return result;
  }

 private:
  static const std::string& symbol_if_named(const std::string& symbol) {
    setenv("NCCL_RMA_PLUGIN", "pacecar", 1);
    return symbol;
  }

  Rank& rank_;
  std::unique_ptr<FakeNcclHost> net_;
  nccl::OneSidedHost host_;
};

// Memory shared as a window with all ranks.
class Shared : public nccl::Pages {
 public:
  Shared(const Member& member, size_t size)
      : Pages(size), host_(*member.operator->()), window_(host_.share(bytes())) {}
  ~Shared() {
    if (window_ != nullptr) host_.unshare(window_);
  }

  nccl::WindowPlace at(size_t offset) const { return {window_, offset}; }
  void* window() const { return window_; }
  const uint64_t& word(size_t index) const {
    return reinterpret_cast<const uint64_t*>(bytes().data())[index];
  }

 private:
  const nccl::OneSidedHost& host_;
  void* window_;
};

}  // namespace pacecar::test
