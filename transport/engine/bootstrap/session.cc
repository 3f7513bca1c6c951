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
  refused_ = true;
  const auto text = std::string_view(reason.message).substr(0, kMaxBootstrapPayload);
  answer(reason.code == ErrorCode::kStale ? ReplyStatus::kStale : ReplyStatus::kRefused,
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
  if (flushed && refused_) return state_ = State::kFailed;
  const ChannelStatus status = channel_.receive(FrameType::kConfirm);
  if (status == ChannelStatus::kPending && now < deadline_) return state_;
  const bool confirmed = status == ChannelStatus::kReady && answered_ &&
                         handshake_.open(FrameType::kConfirm, channel_.body());
  return state_ = confirmed ? State::kConfirmed : State::kFailed;
}

}  // namespace pacecar
