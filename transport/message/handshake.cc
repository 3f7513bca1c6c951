#include "transport/message/handshake.h"

#include <algorithm>

#include "cc/allocator.h"
#include "transport/message/control_words.h"
#include "transport/wire/big_endian.h"

namespace pacecar {
namespace {

// "PCM" and the version of the message layer: raise it with every change of the encoding, or of
// what peers must agree on otherwise (B: tags cover control writes as a whole).
constexpr uint32_t kOfferMagic = 0x50434D0B;
constexpr uint32_t kAnswerMagic = 0x50434E0B;

class Writer {
 public:
  void u32(uint32_t value) { wire::store_be32(value, grow(4)); }
  void u64(uint64_t value) { wire::store_be64(value, grow(8)); }
  void bytes(std::span<const uint8_t> from) {
    std::copy(from.begin(), from.end(), grow(from.size()));
  }
  std::vector<uint8_t> take() { return std::move(bytes_); }

 private:
  uint8_t* grow(size_t size) {
    bytes_.resize(bytes_.size() + size);
    return bytes_.data() + bytes_.size() - size;
  }
  std::vector<uint8_t> bytes_;
};

// Reads past the end yield zeros and mark the message as malformed, as do invalid values.
class Reader {
 public:
  explicit Reader(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  uint32_t u32() {
    std::array<uint8_t, 4> raw{};
    copy_to(raw);
    return wire::load_be32(raw.data());
  }
  uint64_t u64() {
    std::array<uint8_t, 8> raw{};
    copy_to(raw);
    return wire::load_be64(raw.data());
  }
  void copy_to(std::span<uint8_t> to) {
    if (bytes_.size() < to.size()) return refuse();
    std::copy_n(bytes_.begin(), to.size(), to.begin());
    bytes_ = bytes_.subspan(to.size());
  }
  void refuse() {
    refused_ = true;
    bytes_ = {};
  }
  bool exhausted() const { return !refused_ && bytes_.empty(); }

 private:
  std::span<const uint8_t> bytes_;
  bool refused_ = false;
};

void write(Writer& out, const QueuePairAddress& address) {
  out.u32(address.size);
  out.bytes(address.view());
}

void read(Reader& in, QueuePairAddress& address) {
  const uint32_t size = in.u32();
  if (size > QueuePairAddress::kMaxBytes) return in.refuse();
  address.size = static_cast<uint8_t>(size);
  in.copy_to(std::span(address.bytes).first(size));
}

void write(Writer& out, const RemoteAddress& to) {
  out.u64(to.address);
  out.u32(to.key);
}

void read(Reader& in, RemoteAddress& to) {
  to.address = in.u64();
  to.key = in.u32();
}

void write(Writer& out, const FlowEnd& end) {
  write(out, end.data);
  write(out, end.control);
  write(out, end.words);
}

void read(Reader& in, FlowEnd& end) {
  read(in, end.data);
  read(in, end.control);
  read(in, end.words);
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
  out.u32(kOfferMagic);
  out.bytes(offer.sender);
  out.u64(offer.flow);
  out.u32(offer.joined ? 1 : 0);
  out.bytes(offer.obeys);
  out.u32(offer.weight);
  out.u32(offer.eager);
  out.u32(offer.number);
  out.u64(offer.count);
  write(out, offer.end);
  write(out, offer.table);
  return out.take();
}

std::vector<uint8_t> encode(const Answer& answer) {
  Writer out;
  out.u32(kAnswerMagic);
  write(out, answer.end);
  out.u32(answer.eager);
  write(out, answer.table);
  return out.take();
}

Result<Offer> decode_offer(std::span<const uint8_t> bytes) {
  Reader in(bytes);
  Offer offer;
  if (in.u32() != kOfferMagic) return other_version("offer");
  in.copy_to(offer.sender);
  offer.flow = in.u64();
  const uint32_t joined = in.u32();
  if (joined > 1) in.refuse();
  offer.joined = joined == 1;
  in.copy_to(offer.obeys);
  offer.weight = in.u32();
  if (offer.weight == 0 || offer.weight > kMaxWeight) in.refuse();
  offer.eager = in.u32();
  if (offer.eager > kMaxEager) in.refuse();
  offer.number = in.u32();
  if (offer.number >= Immediate::kMaxConnections) in.refuse();
  offer.count = in.u64();
  read(in, offer.end);
  read(in, offer.table);
  if (!in.exhausted()) return other_version("offer");
  return offer;
}

Result<Answer> decode_answer(std::span<const uint8_t> bytes) {
  Reader in(bytes);
  Answer answer;
  if (in.u32() != kAnswerMagic) return other_version("answer");
  read(in, answer.end);
  answer.eager = in.u32();
  read(in, answer.table);
  if (!in.exhausted()) return other_version("answer");
  return answer;
}

}  // namespace pacecar
