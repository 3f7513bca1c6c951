#include "transport/message/control_writes.h"

#include "transport/base/return_if_error.h"

namespace pacecar {
namespace {

// Most outstanding words of a flow. Beyond them only the newest word is kept, until one completes.
// 800 Gb/s and 8 us take 50, each with credit for four packets.
constexpr uint32_t kMaxWords = 56;

}  // namespace

ControlWrites::ControlWrites(Nic& nic)
    : nic_(nic),
      words_(2 * size_t{nic.caps().flows}),
      words_in_(words_.data(), nic.caps().flows),
      words_out_(words_.data() + nic.caps().flows, nic.caps().flows),
      words_seen_(nic.caps().flows),
      pending_(nic.caps().flows) {}

void ControlWrites::deregister_memory() { nic_.deregister_memory(words_out_region_); }

Result<void> ControlWrites::register_memory() {
  ASSIGN_OR_RETURN(
      words_out_region_,
      nic_.register_memory(words_out_.data(), words_out_.size_bytes(), Access::kLocalRead));
  return {};
}

Result<MemoryRegion> ControlWrites::expose_word(FlowId flow) {
  words_in_[flow] = words_seen_[flow] = words_out_[flow] = 0;
  return nic_.register_memory(&words_in_[flow], sizeof(uint64_t), Access::kRemoteWrite);
}

void ControlWrites::queue(FlowId flow, uint64_t word) {
  if (words_out_[flow] == word) return;
  words_out_[flow] = word;
  pending_.add(flow);
}

void ControlWrites::post_pending(const Places<MessageFlow>& flows, Instant now) {
  for (size_t left = pending_.size(); left > 0; --left) post_word(flows[pending_.take()], now);
}

// The NIC reads the word when it sends the write and again when it retransmits it; an RDMA NIC that
// sends inline copies it here. Either way an older word never follows a newer one.
void ControlWrites::post_word(MessageFlow& flow, Instant now) {
  if (flow.words_outstanding == kMaxWords || flow.state != FlowState::kOpen) return;
  const bool posted = post(flow, {.id = WorkId{WorkId::Kind::kWord, flow.id, 0}.pack(),
                                  .local = reinterpret_cast<const uint8_t*>(&words_out_[flow.id]),
                                  .remote = flow.remote.words.address,
                                  .length = sizeof(uint64_t),
                                  .local_key = words_out_region_.key,
                                  .remote_key = flow.remote.words.key,
                                  .passing = true,
                                  .host = true});
  if (!posted) return pending_.add(flow.id);  // no room: again at the next poll
  ++flow.words_outstanding;
  flow.word_posted = words_out_[flow.id];
  flow.last_word = now;
}

void ControlWrites::on_word_done(MessageFlow& flow) {
  --flow.words_outstanding;
  flow.watch.on_word_done(nic_.caps().software);
  if (words_out_[flow.id] != flow.word_posted) pending_.add(flow.id);
}

}  // namespace pacecar
