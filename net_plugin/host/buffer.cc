#include "net_plugin/host/buffer.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <utility>

namespace pacecar::nccl {

Registration::Registration(const Host& host, void* comm, std::span<uint8_t> data)
    : host_(host), comm_(comm) {
  expect_success(host.net().regMr(comm, data.data(), data.size(), kPointerHost, &memory_), "regMr");
}

Registration::~Registration() {
  if (comm_ != nullptr) host_.net().deregMr(comm_, memory_);
}

void Registration::deregister() {
  expect_success(host_.net().deregMr(std::exchange(comm_, nullptr), memory_), "deregMr");
}

Pages::Pages(size_t bytes) {
  void* const pages =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  expect(pages != MAP_FAILED,
         fmt::format("cannot map {} bytes: use smaller or fewer messages", bytes));
  bytes_ = {static_cast<uint8_t*>(pages), bytes};
}

Pages::~Pages() { munmap(bytes_.data(), bytes_.size()); }

void Pages::forbid_access() const {
  expect(mprotect(bytes_.data(), bytes_.size(), PROT_NONE) == 0, "mprotect failed");
}

}  // namespace pacecar::nccl
