// The connections of a flow, by the numbers that their data carries. The sender numbers them, and
// uses a number again when nothing of its last connection is on its way any more; so the receiver
// takes the newest connection of a number for the one that is meant.
//
// Pure; one thread. Memory grows only when a connection is added.
#pragma once

#include <cstdint>
#include <vector>

#include "transport/message/control_words.h"

namespace pacecar {

class FlowConnections {
 public:
  static constexpr uint32_t kNone = ~0U;

  bool full() const { return free_.empty() && connections_.size() == Immediate::kMaxConnections; }
  // At the sender: gives the connection a number. Not when full.
  uint32_t add(uint32_t connection) {
    if (free_.empty()) {
      connections_.push_back(connection);
      return static_cast<uint32_t>(connections_.size() - 1);
    }
    const uint32_t number = free_.back();
    free_.pop_back();
    connections_[number] = connection;
    return number;
  }
  void remove(uint32_t number) {
    connections_[number] = kNone;
    free_.push_back(number);
  }

  // At the receiver: of a number that the sender has given, below Immediate::kMaxConnections.
  void put(uint32_t number, uint32_t connection) {
    if (number >= connections_.size()) connections_.resize(number + 1, kNone);
    connections_[number] = connection;
  }
  // Unless the number is another connection's by now.
  void take(uint32_t number, uint32_t connection) {
    if (connections_[number] == connection) connections_[number] = kNone;
  }

  // kNone: there is none.
  uint32_t at(uint32_t number) const {
    return number < connections_.size() ? connections_[number] : kNone;
  }
  // By number, kNone among them.
  const std::vector<uint32_t>& all() const { return connections_; }

 private:
  std::vector<uint32_t> connections_;
  std::vector<uint32_t> free_;  // the sender's
};

}  // namespace pacecar
