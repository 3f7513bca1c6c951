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

void BootstrapSession::refuse(const Error& reason) {
  refusal_ = reason.message.substr(0, kMaxBootstrapPayload);
  answer(reason.code == ErrorCode::kStale ? ReplyStatus::kStale : ReplyStatus::kRefused,
         {reinterpret_cast<const uint8_t*>(refusal_->data()), refusal_->size()});
}

void BootstrapSession::answer(ReplyStatus status, std::span<const uint8_t> payload) {
  PACECAR_CHECK(!answered_ && payload.size() <= kMaxBootstrapPayload);
  answered_ = true;
  const auto content = bootstrap::encode_reply({status, payload});
  channel_.queue(handshake_.seal(FrameType::kReply, content));
  channel_.flush();  // poll() sees a failure
}

BootstrapSession::State BootstrapSession::fail_with(std::string_view what) {
  error_ = {ErrorCode::kPeer, fmt::format("the connection from {} {}", peer(), what)};
  return state_ = State::kFailed;
}

BootstrapSession::State BootstrapSession::poll(Instant now) {
  if (state_ != State::kWaiting) return state_;
  const bool flushed = channel_.flush() == ChannelStatus::kReady;
  if (flushed && refusal_) return fail_with("was refused: " + *refusal_);
  switch (channel_.receive(FrameType::kConfirm)) {
    case ChannelStatus::kPending:
      if (now < deadline_) return state_;
      return fail_with("was not confirmed in time: look for the cause on the peer");
    case ChannelStatus::kReady:
      if (answered_ && handshake_.open(FrameType::kConfirm, channel_.body())) {
        return state_ = State::kConfirmed;
      }
      return fail_with("was confirmed without knowledge of the handle's secret");
    case ChannelStatus::kClosed:
      return fail_with("was closed before it was confirmed: look for the cause on the peer");
    case ChannelStatus::kForeign:
    case ChannelStatus::kOtherVersion:
      break;
  }
  return fail_with("continued with bytes that are not Pacecar's: look for a proxy in between");
}

}  // namespace pacecar
