// RcRecovery: replaces a connection of standard RC that has failed by another one
// (transport/nic/lanes), with requests and rights as before. No message is lost or delivered twice:
// each end counts the writes with immediate that it receives, and a failed end receives nothing
// more under its old queue pair number. A request is sent again only when the peer has reported
// that its end is replaced, too, and how many writes have arrived. Thread rule: one owner.
#pragma once

#include <cstdint>

#include "transport/nic/lanes/lane_recovery.h"
#include "transport/nic/nic.h"

namespace pacecar {

class RcEnd;
class StandbyEnd;
struct QueuePair;

class RcRecovery {
 public:
  explicit RcRecovery(RcEnd& end) : end_(end) {}

  bool up() const { return machine_.up(); }
  // It accepts packets: joined, and not failed since.
  bool open() const { return open_; }
  Instant deadline() const { return machine_.deadline(); }
  CompletionStatus failed_by() const { return failed_by_; }
  void use_standby(QueuePair* standby) { standby_ = standby; }
  // Null: the connection cannot come back.
  QueuePair* standby() const { return standby_; }

  // The connection has failed. Breaks the queue pair if it cannot come back.
  void fail(CompletionStatus status, Instant now);
  void advance(Instant now);  // Takes all steps that are possible now.
  void on_message(const RecoveryMessage& message, Instant now);
  void on_malformed();  // The peer has sent a message that is not a RecoveryMessage.
  void on_timeout(Instant now);

 private:
  StandbyEnd& standby_end() const;
  bool is_futile();
  bool take_step(LaneRecovery::Step step, Instant now);
  bool replace();
  bool join();
  void use(Instant now);
  bool send(RecoveryMessage::Kind kind);

  RcEnd& end_;
  LaneRecovery machine_;
  QueuePair* standby_ = nullptr;
  CompletionStatus failed_by_ = CompletionStatus::kOk;  // while it is not up
  uint32_t futile_ = 0;    // connections in a row that our refusal ended without progress
  uint64_t finished_ = 0;  // our finished work requests when the last connection ended
  bool open_ = true;
};

}  // namespace pacecar
