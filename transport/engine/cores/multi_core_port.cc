#include "transport/engine/cores/multi_core_port.h"

#include <fmt/format.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "transport/base/check.h"
#include "transport/base/return_if_error.h"
#include "transport/base/start_thread.h"
#include "transport/engine/own_thread.h"

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

void sleep(Core& core, const CoreThreadConfig& config, const std::stop_token& stop) {
  core.bell().expect();
  const Instant deadline = stop.stop_requested() ? Instant() : core.prepare_to_wait(config.clock());
  std::array<pollfd, 2> waiting{pollfd{core.wait_fd(), POLLIN, 0},
                                pollfd{core.bell().fd(), POLLIN, 0}};
  sleep_until(config.blind ? std::min(deadline, config.clock() + kBlindSleep) : deadline, waiting);
  core.bell().answer();
}

// Takes turns as long as there is work, and a little longer; then it sleeps until something arrives
// or is handed over, without using the processor.
void run(Core& core, const CoreThreadConfig& config, const std::stop_token& stop) {
  const std::stop_callback wake(stop, [&core] { core.bell().ring(); });
  begin_thread("pacecar core");
  Instant last_moved = config.clock();
  while (!stop.stop_requested()) {
    const Instant now = config.clock();
    if (core.turn(now, config.clock)) {
      last_moved = now;
    } else if (now - last_moved >= config.spin) {
      sleep(core, config, stop);
    }
  }
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
    threads_.push_back(
        start_thread<std::jthread>("drives an engine (PACECAR_ENGINES)",
                                   [this, config, &core = *core](const std::stop_token& stop) {
                                     if (processors_ != nullptr) processors_->bind_this_thread();
                                     run(core, config, stop);
                                   }));
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
    received += core->take_published() ? 1 : 0;
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

bool MultiCorePort::prepare_to_wait(Instant now) {
  bell_->expect();
  expecting_ = true;
  const bool published =
      std::ranges::any_of(further_, [](const auto& core) { return core->has_published(); });
  return !published && first_->prepare_to_wait(now);
}

}  // namespace pacecar
