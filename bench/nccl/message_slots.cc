#include "bench/nccl/message_slots.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>

namespace pacecar::nccl {

MessageSlots::MessageSlots(const Plugin& plugin, void* comm, size_t message_bytes, size_t slots)
    : plugin_(plugin), comm_(comm), message_bytes_(message_bytes) {
  const size_t bytes = message_bytes * slots;
  void* const pages =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) {
    throw std::runtime_error(
        fmt::format("cannot map {} bytes: lower --size or --in-flight", bytes));
  }
  memory_ = {static_cast<std::byte*>(pages), bytes};
  std::fill(memory_.begin(), memory_.end(), std::byte{0x5a});  // no page fault is measured
  registration_ = value_or_throw(plugin_.register_memory(comm_, memory_));
}

MessageSlots::~MessageSlots() {
  static_cast<void>(plugin_.deregister_memory(comm_, registration_));
  munmap(memory_.data(), memory_.size());
}

void* MessageSlots::send(size_t slot, size_t bytes) const {
  return value_or_throw(plugin_.send(comm_, slot_data(slot).first(bytes), registration_));
}

void* MessageSlots::receive(size_t slot) const {
  return value_or_throw(plugin_.receive(comm_, slot_data(slot), registration_));
}

bool MessageSlots::test(void* request, size_t* bytes) const {
  return value_or_throw(plugin_.test(request, bytes));
}

std::span<std::byte> MessageSlots::slot_data(size_t slot) const {
  return memory_.subspan(slot * message_bytes_, message_bytes_);
}

}  // namespace pacecar::nccl
