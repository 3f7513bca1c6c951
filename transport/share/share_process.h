// ShareProcess: a process that uses a ShareTable, and what it can learn about the others. The class
// itself is a process of a simulated host: its owner word is any number that no other has, and the
// others never end.
#pragma once

#include <cstdint>

namespace pacecar {

class ShareProcess {
 public:
  explicit ShareProcess(uint64_t owner) : owner_(owner) {}
  virtual ~ShareProcess() = default;
  ShareProcess(const ShareProcess&) = delete;
  ShareProcess& operator=(const ShareProcess&) = delete;

  // The word for its slot; 0: no longer that process (a forked child).
  virtual uint64_t owner() const { return owner_; }
  // The process with this owner's word has certainly ended.
  virtual bool ended(uint64_t /*owner*/) const { return false; }
  // The process is in another process namespace, so its end cannot be detected.
  virtual bool hidden(uint64_t /*owner*/) const { return false; }

 private:
  const uint64_t owner_;
};

}  // namespace pacecar
