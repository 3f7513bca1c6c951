#include <fmt/format.h>

#include "transport/base/check.h"
#include "transport/engine/bootstrap/bootstrap.h"
#include "transport/wire/address.h"

namespace pacecar {

using bootstrap::ChannelStatus;
using bootstrap::FrameType;
using bootstrap::ReplyStatus;

std::string BootstrapSession::peer() const { return to_string(channel_.peer()); }

void BootstrapSession::reply(std::span<const uint8_t> payload) {
  answer(ReplyStatus::kAccepted, payload);
}

void BootstrapSession::refuse(Error reason) {
  failure_ = std::move(reason);
  const auto text = std::string_view(failure_->message).substr(0, kMaxBootstrapPayload);
  answer(failure_->code == ErrorCode::kStale ? ReplyStatus::kStale : ReplyStatus::kRefused,
         {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

void BootstrapSession::answer(ReplyStatus status, std::span<const uint8_t> payload) {
  PACECAR_CHECK(!answered_ && payload.size() <= kMaxBootstrapPayload);
  answered_ = true;
  const auto content = bootstrap::encode_reply({status, payload});
  channel_.queue(handshake_.seal(FrameType::kReply, content));
  channel_.flush();  // poll() sees a failure
}

BootstrapSession::State BootstrapSession::poll(Instant now) {
  if (state_ != State::kWaiting) return state_;
  const bool flushed = channel_.flush() == ChannelStatus::kReady;
  if (flushed && failure_) return state_ = State::kFailed;
  const ChannelStatus status = channel_.receive(FrameType::kConfirm);
  if (status == ChannelStatus::kPending && now < deadline_) return state_;
  const bool confirmed = status == ChannelStatus::kReady && answered_ &&
                         handshake_.open(FrameType::kConfirm, channel_.body());
  if (confirmed) return state_ = State::kConfirmed;
  if (!failure_) {
    const bool silent = status == ChannelStatus::kPending;
    failure_ = {
        ErrorCode::kPeer,
        fmt::format("the peer at {} has {} while it connected: look for the first error there",
                    peer(), silent ? "fallen silent (stopped, or cut off)" : "ended or given up")};
  }
  return state_ = State::kFailed;
}

}  // namespace pacecar
