#include "transport/message/handshake.h"

#include <algorithm>

#include "cc/allocator.h"
#include "transport/message/control_words.h"
#include "transport/wire/big_endian.h"

namespace pacecar {
namespace {

// "PCM" and the version of the message layer: raise it with every change of the encoding, or of
// what peers must agree on otherwise (C: packets in pieces, questions).
constexpr uint32_t kOfferMagic = 0x50434D0C;
constexpr uint32_t kAnswerMagic = 0x50434E0C;

class Writer {
 public:
  void u32(uint32_t value, uint32_t /*least*/ = 0, uint32_t /*most*/ = 0) {
    wire::store_be32(value, grow(4));
  }
  void u64(uint64_t value) { wire::store_be64(value, grow(8)); }
  void flag(bool value) { u32(value ? 1 : 0); }
  void bytes(std::span<const uint8_t> from) {
    std::copy(from.begin(), from.end(), grow(from.size()));
  }
  void address(const QueuePairAddress& address) {
    u32(address.size);
    bytes(address.view());
  }
  std::vector<uint8_t> take() { return std::move(bytes_); }

 private:
  uint8_t* grow(size_t size) {
    bytes_.resize(bytes_.size() + size);
    return bytes_.data() + bytes_.size() - size;
  }
  std::vector<uint8_t> bytes_;
};

// Reads past the end yield zeros and mark the message as malformed, as do values out of range.
class Reader {
 public:
  explicit Reader(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  void u32(uint32_t& value, uint32_t least = 0, uint32_t most = ~0U) {
    std::array<uint8_t, 4> raw{};
    bytes(raw);
    value = wire::load_be32(raw.data());
    if (value < least || value > most) refuse();
  }
  void u64(uint64_t& value) {
    std::array<uint8_t, 8> raw{};
    bytes(raw);
    value = wire::load_be64(raw.data());
  }
  void flag(bool& value) {
    uint32_t number = 0;
    u32(number, 0, 1);
    value = number == 1;
  }
  void bytes(std::span<uint8_t> to) {
    if (bytes_.size() < to.size()) return refuse();
    std::copy_n(bytes_.begin(), to.size(), to.begin());
    bytes_ = bytes_.subspan(to.size());
  }
  void address(QueuePairAddress& address) {
    uint32_t size = 0;
    u32(size);
    if (size > QueuePairAddress::kMaxBytes) return refuse();
    address.size = static_cast<uint8_t>(size);
    bytes(std::span(address.bytes).first(size));
  }
  bool exhausted() const { return !refused_ && bytes_.empty(); }

 private:
  void refuse() {
    refused_ = true;
    bytes_ = {};
  }
  std::span<const uint8_t> bytes_;
  bool refused_ = false;
};

// --- the fields in their order, for a Writer and a Reader ---

void code_remote(auto& codec, auto& remote) {
  codec.u64(remote.address);
  codec.u32(remote.key);
}

void code_end(auto& codec, auto& end) {
  codec.address(end.data);
  codec.address(end.control);
  code_remote(codec, end.words);
}

void code_offer(auto& codec, auto& offer) {
  uint32_t magic = kOfferMagic;
  codec.u32(magic, kOfferMagic, kOfferMagic);
  codec.bytes(offer.sender);
  codec.u64(offer.flow);
  codec.flag(offer.joined);
  codec.bytes(offer.obeys);
  codec.u32(offer.weight, 1, kMaxWeight);
  codec.u32(offer.eager, 0, kMaxEager);
  codec.u32(offer.number, 0, Immediate::kMaxConnections - 1);
  codec.u64(offer.count);
  code_end(codec, offer.end);
  code_remote(codec, offer.table);
}

void code_answer(auto& codec, auto& answer) {
  uint32_t magic = kAnswerMagic;
  codec.u32(magic, kAnswerMagic, kAnswerMagic);
  code_end(codec, answer.end);
  codec.u32(answer.eager);
  code_remote(codec, answer.table);
}

tl::unexpected<Error> other_version(const char* what) {
  return fail(ErrorCode::kPeer, std::string("the peer's ") + what +
                                    " has another form: run the same version of Pacecar on both "
                                    "sides");
}

}  // namespace

AllocatorName allocator_name(std::string_view name) {
  AllocatorName padded{};
  std::copy_n(name.begin(), std::min(name.size(), padded.size()), padded.begin());
  return padded;
}

std::vector<uint8_t> encode(const Offer& offer) {
  Writer out;
  code_offer(out, offer);
  return out.take();
}

std::vector<uint8_t> encode(const Answer& answer) {
  Writer out;
  code_answer(out, answer);
  return out.take();
}

Result<Offer> decode_offer(std::span<const uint8_t> bytes) {
  Reader in(bytes);
  Offer offer;
  code_offer(in, offer);
  if (!in.exhausted()) return other_version("offer");
  return offer;
}

Result<Answer> decode_answer(std::span<const uint8_t> bytes) {
  Reader in(bytes);
  Answer answer;
  code_answer(in, answer);
  if (!in.exhausted()) return other_version("answer");
  return answer;
}

}  // namespace pacecar
