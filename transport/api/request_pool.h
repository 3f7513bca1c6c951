// The requests of one connection: a fixed number, taken and given back by the thread that uses the
// connection. The one given back last is taken next, and memory is touched only where one was ever
// taken: few at a time take little.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include "transport/message/message_request.h"

namespace pacecar {

class RequestPool {
 public:
  explicit RequestPool(uint32_t size)
      : places_(std::make_unique_for_overwrite<Place[]>(size)), untaken_(size), size_(size) {
    free_.reserve(size);
  }

  // A pending request; nullptr when all are in use.
  MessageRequest* take() {
    MessageRequest* request = nullptr;
    if (!free_.empty()) {
      request = free_.back();
      free_.pop_back();
    } else if (untaken_ > 0) {
      request = std::construct_at(&places_[size_ - untaken_--].request);
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

 private:
  static_assert(std::is_trivially_destructible_v<MessageRequest>);
  union Place {
    Place() {}  // leaves the memory alone
    MessageRequest request;
  };

  std::unique_ptr<Place[]> places_;
  std::vector<MessageRequest*> free_;
  uint32_t untaken_;  // that were never taken
  uint32_t size_;
};

}  // namespace pacecar
