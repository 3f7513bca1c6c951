// ShareProcess: who takes part in a ShareTable, and what it can find out of the others. As it is,
// one of a simulated host: the owner's word is any number of its own, and others live for ever.
#pragma once

#include <cstdint>

namespace pacecar {

class ShareProcess {
 public:
  explicit ShareProcess(uint64_t owner) : owner_(owner) {}
  virtual ~ShareProcess() = default;
  ShareProcess(const ShareProcess&) = delete;
  ShareProcess& operator=(const ShareProcess&) = delete;

  // What it writes into its slot; 0: it is not that process any more (a forked child).
  virtual uint64_t owner() const { return owner_; }
  // The process with this owner's word has certainly ended.
  virtual bool ended(uint64_t /*owner*/) const { return false; }
  // It can never be known of that one.
  virtual bool hidden(uint64_t /*owner*/) const { return false; }

 private:
  const uint64_t owner_;
};

}  // namespace pacecar
