#include "tests/model/share_steps.h"

#include "transport/base/check.h"

namespace pacecar::model {

Fiber* Fiber::current_ = nullptr;

Fiber::Fiber(std::function<void()> body)
    : body_(std::move(body)), stack_(std::make_unique_for_overwrite<char[]>(kStack)) {
  PACECAR_CHECK(getcontext(&own_) == 0);
  own_.uc_stack.ss_sp = stack_.get();
  own_.uc_stack.ss_size = kStack;
  own_.uc_link = &caller_;
  makecontext(&own_, &Fiber::enter, 0);
}

void Fiber::enter() {
  current_->body_();
  current_->ended_ = true;
}

void Fiber::run() {
  PACECAR_CHECK(!ended_ && current_ == nullptr);
  current_ = this;
  PACECAR_CHECK(swapcontext(&caller_, &own_) == 0);
  current_ = nullptr;
}

void Fiber::pause() {
  if (current_ == nullptr) return;
  Fiber* const fiber = current_;
  PACECAR_CHECK(swapcontext(&fiber->own_, &fiber->caller_) == 0);
}

}  // namespace pacecar::model
