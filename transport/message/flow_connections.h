// The connections of a flow, by the number in their immediates. The sender assigns the numbers, and
// reuses one when nothing of its last connection is outstanding; so a number always means the
// newest connection that has it. Pure; one thread. Memory grows only when a connection is added.
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

  // At the receiver: a number that the sender has assigned, below Immediate::kMaxConnections.
  void put(uint32_t number, uint32_t connection) {
    if (number >= connections_.size()) connections_.resize(number + 1, kNone);
    connections_[number] = connection;
  }
  // At the receiver: removes the connection, unless its number has been reused.
  void take(uint32_t number, uint32_t connection) {
    if (connections_[number] == connection) connections_[number] = kNone;
  }

  // kNone: no connection has this number.
  uint32_t at(uint32_t number) const {
    return number < connections_.size() ? connections_[number] : kNone;
  }
  // By number, with kNone for free numbers.
  const std::vector<uint32_t>& all() const { return connections_; }

 private:
  std::vector<uint32_t> connections_;
  std::vector<uint32_t> free_;  // used by the sender only
};

}  // namespace pacecar
