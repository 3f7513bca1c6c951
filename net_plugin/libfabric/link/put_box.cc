#include "net_plugin/libfabric/link/put_box.h"

#include <utility>

namespace pacecar::fabric {

PutBox::~PutBox() {
  const size_t nic = connection_->nic();
  connection_.reset();
  if (memory_ != nullptr) (void)context_->deregister_memory(nic, memory_);
}

Result<void> PutBox::open(const Frame& hello) {
  auto memory = context_->register_memory(connection_->nic(), frames_.data(), frames_.bytes());
  if (!memory) return tl::unexpected(memory.error());
  memory_ = *memory;
  say(hello);
  return start();
}

void PutBox::say(const Frame& frame) {
  --frames_free_;
  const uint32_t place = std::exchange(next_place_, (next_place_ + 1) % kFrames);
  frames_[place] = frame;
  parts_.push_back({.place = place});
}

Result<void> PutBox::start() {
  while (started_ < parts_.size()) {
    Part& part = parts_[started_];
    const Put& put = part.put;
    auto started = part.is_put
                       ? connection_->iput(put.data, put.size, put.memory, put.window, 0)
                       : connection_->isend(&frames_[part.place], sizeof(Frame), 0, memory_);
    if (!started) return tl::unexpected(started.error());
    if (*started == nullptr) return {};
    part.request = *started;
    ++started_;
  }
  return {};
}

}  // namespace pacecar::fabric
