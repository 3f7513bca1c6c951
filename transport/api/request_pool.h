// The requests of one connection: a fixed number, taken and given back by the thread that uses the
// connection.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "transport/message/message_request.h"

namespace pacecar {

class RequestPool {
 public:
  explicit RequestPool(uint32_t size) : requests_(std::make_unique<MessageRequest[]>(size)) {
    free_.reserve(size);
    for (uint32_t i = size; i-- > 0;) free_.push_back(&requests_[i]);
  }

  // A pending request; nullptr when all are in use.
  MessageRequest* take() {
    if (free_.empty()) return nullptr;
    MessageRequest* request = free_.back();
    free_.pop_back();
    request->set(MessageRequest::State::kPending);
    return request;
  }
  void give_back(MessageRequest* request) {
    request->set(MessageRequest::State::kFree);
    free_.push_back(request);
  }

 private:
  std::unique_ptr<MessageRequest[]> requests_;
  std::vector<MessageRequest*> free_;
};

}  // namespace pacecar
