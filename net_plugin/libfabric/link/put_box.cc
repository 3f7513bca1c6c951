#include "net_plugin/libfabric/link/put_box.h"

#include <utility>

#include "transport/base/return_if_error.h"

namespace pacecar::fabric {

PutBox::~PutBox() {
  const size_t nic = connection_->nic();
  connection_.reset();
  if (memory_ != nullptr) (void)context_->deregister_memory(nic, memory_);
}

Result<void> PutBox::open(const Frame& hello) {
  ASSIGN_OR_RETURN(memory_,
                   context_->register_memory(connection_->nic(), frames_.data(), frames_.bytes()));
  send_frame(hello);
  return start();
}

void PutBox::send_frame(const Frame& frame) {
  --frames_free_;
  const uint32_t slot = std::exchange(next_slot_, (next_slot_ + 1) % kFrames);
  frames_[slot] = frame;
  entries_.push_back({.slot = slot});
}

Result<void> PutBox::start() {
  while (started_ < entries_.size()) {
    Entry& entry = entries_[started_];
    const Put& put = entry.put;
    ASSIGN_OR_RETURN(auto started,
                     entry.is_put
                         ? connection_->iput(put.data, put.size, put.memory, put.window, 0)
                         : connection_->isend(&frames_[entry.slot], sizeof(Frame), 0, memory_));
    if (started == nullptr) return {};
    entry.request = started;
    ++started_;
  }
  return {};
}

}  // namespace pacecar::fabric
