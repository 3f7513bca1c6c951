#include "transport/softnic/extended/path_mtu.h"

#include <algorithm>

namespace pacecar {

PathMtu::PathMtu(const Config& config)
    : config_(config), payload_(config.payload), passed_(config.payload + config.overhead) {
  const Bytes least = config.payload / kMostPieces + 2 * kLineBytes + config.overhead;
  auto last = size_room_.begin();
  for (const Bytes size : kUsual) {
    if (config.searches && size >= least && size < passed_) *last++ = size;
  }
  *last++ = passed_;
  sizes_ = {size_room_.begin(), last};
  if (sizes_.size() == 1) return;
  ask_again(Instant());
  payload_ = least_payload();
}

Bytes PathMtu::payload_of(Bytes size) const {
  if (size >= full()) return config_.payload;
  return (size - config_.overhead) / kLineBytes * kLineBytes;
}

void PathMtu::ask_again(Instant now) {
  state_ = State::kAskingFull;
  rounds_ = 0;
  round_time_ = Duration();
  answered_ = false;
  full_passes_ = false;
  passed_ = 0;
  deadline_ = now;
}

// To the state of the next round.
void PathMtu::advance() {
  switch (state_) {
    case State::kAskingFull:
      if (rounds_++ < kJoinedRounds) break;
      state_ = State::kAskingAll;
      payload_ = least_payload();
      hopeful_ = false;
      rounds_ = 0;
      break;
    case State::kAskingAll:
      if (answered_ && ++rounds_ == kAnsweredRounds) {
        state_ = State::kAskingJoined;
        rounds_ = 1;
      }
      break;
    case State::kAskingJoined: ++rounds_; break;
    case State::kSettled: break;
  }
}

PathMtu::Questions PathMtu::ask(Instant now, Duration timeout) {
  if (now < deadline_) return {};
  joined_answers_ = 0;
  const auto whole = std::span(sizes_).last(1);
  if (state_ == State::kSettled) {
    deadline_ = now + kRetry;
    full_passes_ = false;
    return {whole, whole};
  }
  advance();
  if (state_ == State::kAskingJoined && rounds_ > kJoinedRounds) {
    settle(true, now);
    return {};
  }
  // Where nothing is answered, the peer or its host may be slow.
  const bool in_vain = round_time_ > Duration() && !answered_;
  round_time_ = std::min(std::max({timeout, kLeastRound, in_vain ? round_time_ * 2 : Duration()}),
                         kMostRound);
  deadline_ = now + round_time_;
  answered_ = false;
  if (state_ == State::kAskingFull) return {whole, whole};
  if (state_ == State::kAskingAll) return {sizes_, {}};
  return {{}, {std::ranges::find(sizes_, passed_), 1}};
}

void PathMtu::settle(bool one_by_one, Instant now) {
  state_ = State::kSettled;
  one_by_one_ = one_by_one;
  hopeful_ = false;
  payload_ = payload_of(passed_);
  losses_ = 0;
  deadline_ = one_by_one || passed_ < full() ? now + kRetry : Instant::never();
}

void PathMtu::on_answer(Bytes size, bool joined, Instant now) {
  if (!std::ranges::binary_search(sizes_, size)) return;
  if (joined) ++joined_answers_;
  const bool both_joined = joined_answers_ >= 2;
  if (size == full()) {
    full_passes_ |= !joined;
    if (full_passes_ && (both_joined || state_ == State::kAskingAll)) {
      passed_ = size;
      settle(!both_joined, now);
    }
  } else if (state_ == State::kAskingAll && !joined) {
    passed_ = std::max(passed_, size);
    payload_ = std::max(payload_, payload_of(passed_));
    answered_ = true;
  } else if (state_ == State::kAskingJoined && both_joined && size == passed_) {
    settle(false, now);
  }
}

}  // namespace pacecar
