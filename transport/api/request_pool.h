// The requests of one connection, up to a fixed number. Memory is allocated only when more are
// taken at once than ever before, so that many idle connections take little memory. Thread rule:
// the thread that uses the connection.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "transport/message/message_request.h"

namespace pacecar {

class RequestPool {
 public:
  explicit RequestPool(uint32_t size) : size_(size) {}

  // A pending request; nullptr when all are in use.
  MessageRequest* take() {
    MessageRequest* request = nullptr;
    if (!free_.empty()) {
      request = free_.back();
      free_.pop_back();
    } else if (requests_.size() < size_) {
      request = &requests_.emplace_back();
    } else {
      return nullptr;
    }
    request->set(MessageRequest::State::kPending);
    return request;
  }
  void give_back(MessageRequest* request) {
    request->set(MessageRequest::State::kFree);
    free_.push_back(request);
  }
  // Requests that have not been given back.
  size_t taken() const { return requests_.size() - free_.size(); }

 private:
  std::deque<MessageRequest> requests_;  // a deque, so that requests do not move
  std::vector<MessageRequest*> free_;
  uint32_t size_;
};

}  // namespace pacecar
