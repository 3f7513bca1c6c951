// LiveProcess: this process as a user of a ShareTable. Its word has the process id, start time and
// PID namespace, so that practically no other process has the same word. The word is in memory that
// is wiped in a forked child, which must not use its parent's slot. Thread rule: any thread.
#pragma once

#include <sys/types.h>

#include <memory>

#include "transport/base/result.h"
#include "transport/share/share_seat.h"

namespace pacecar {

// The word of a process, in bits: 22 of its id, 21 each of its start and its namespace.
struct OwnerWord {
  pid_t process = 0;
  uint32_t start = 0;              // in ticks since boot, modulo 2^21
  uint32_t process_namespace = 0;  // inode, modulo 2^21

  static OwnerWord decode(uint64_t word);
  uint64_t encode() const;
};

class LiveProcess final : public ShareProcess {
 public:
  static Result<std::unique_ptr<LiveProcess>> make();  // Errors: kSystem (no /proc, or memory).
  ~LiveProcess() override;

  uint64_t owner() const override { return *word_; }
  // Reads /proc. False for a process of another PID namespace, which is not visible there.
  bool ended(uint64_t owner) const override;
  bool hidden(uint64_t owner) const override;  // The process is of another PID namespace.

 private:
  explicit LiveProcess(uint64_t* word) : ShareProcess(0), word_(word), own_(*word) {}

  uint64_t* const word_;  // a page of its own
  const uint64_t own_;
};

}  // namespace pacecar
