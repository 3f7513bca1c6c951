#include "transport/engine/cores/multi_core_port.h"

#include <fmt/format.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "transport/base/check.h"
#include "transport/base/return_if_error.h"

namespace pacecar {
namespace {

Result<FileDescriptor> wait_for_any(std::initializer_list<int> fds) {
  FileDescriptor all(epoll_create1(EPOLL_CLOEXEC));
  for (const int fd : fds) {
    epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
    if (all && epoll_ctl(all.get(), EPOLL_CTL_ADD, fd, &event) == 0) continue;
    return fail(ErrorCode::kSystem,
                fmt::format("cannot wait for several sockets at once ({}): raise the limit of open "
                            "files (ulimit -n)",
                            std::strerror(errno)));
  }
  return all;
}

}  // namespace

Result<std::unique_ptr<MultiCorePort>> MultiCorePort::make(
    std::vector<std::unique_ptr<SoftPort>> ports, const CoreThreadConfig& config,
    std::unique_ptr<Processors> processors) {
  PACECAR_CHECK(!ports.empty());
  ASSIGN_OR_RETURN(auto bell, Doorbell::make());
  std::vector<std::unique_ptr<Core>> further;
  for (auto& port : std::span(ports).subspan(1)) {
    ASSIGN_OR_RETURN(auto core, Core::make(std::move(port), *bell));
    further.push_back(std::move(core));
  }
  std::unique_ptr<MultiCorePort> made(
      new MultiCorePort(std::move(ports.front()), std::move(bell), std::move(further)));
  made->processors_ = std::move(processors);
  if (config.clock != nullptr) RETURN_IF_ERROR(made->start_threads(config));
  return made;
}

MultiCorePort::MultiCorePort(std::unique_ptr<SoftPort> first, std::unique_ptr<Doorbell> bell,
                             std::vector<std::unique_ptr<Core>> further)
    : first_(std::move(first)),
      bell_(std::move(bell)),
      further_(std::move(further)),
      nic_(first_->soft_nic(), further_) {}

Result<void> MultiCorePort::start_threads(const CoreThreadConfig& config) {
  ASSIGN_OR_RETURN(wait_fd_, wait_for_any({first_->wait_fd(), bell_->fd()}));
  for (auto& core : further_) {
    threads_.push_back(start_core_thread(*core, config, processors_.get()));
  }
  return {};
}

size_t MultiCorePort::receive(Instant now) {
  nic_.set_time(now);
  if (expecting_) {
    expecting_ = false;
    bell_->answer();
  }
  size_t received = first_->receive(now);
  for (auto& core : further_) {
    if (threads_.empty()) core->turn(now, nullptr);
    received += core->take_news() ? 1 : 0;
  }
  return received;
}

void MultiCorePort::on_time(Instant now) {
  nic_.set_time(now);
  first_->on_time(now);
}

size_t MultiCorePort::transmit(Instant now) {
  nic_.set_time(now);
  nic_.hand_over();
  return first_->transmit(now);
}

Instant MultiCorePort::next_deadline() const {
  if (nic_.has_to_hand_over()) return Instant();
  Instant next = first_->next_deadline();
  if (!threads_.empty()) return next;
  for (const auto& core : further_) next = std::min(next, core->next_deadline());
  return next;
}

bool MultiCorePort::prepare_to_wait() {
  bell_->expect();
  expecting_ = true;
  const bool news =
      std::ranges::any_of(further_, [](const auto& core) { return core->has_news(); });
  return !news && first_->prepare_to_wait();
}

}  // namespace pacecar
