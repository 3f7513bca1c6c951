#include "bench/nccl/cpu_device/collectives/transfers.h"

#include <algorithm>
#include <cstring>

#include "bench/nccl/cpu_device/gpu.h"

namespace pacecar::nccl::cpu {
namespace {

size_t rounded_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

// LL's flag of the step, where it lies in a word.
uint64_t flag_of(const Connection& peer) {
  return uint64_t{static_cast<uint32_t>(peer.step + 1)} << 32;
}

}  // namespace

Transfers::Transfers(const Block& block, Protocol protocol, Slices slices,
                     const Arithmetic& arithmetic, const Ends& ends, size_t step_bytes)
    : block_(block),
      protocol_(protocol),
      slices_(slices),
      arithmetic_(arithmetic),
      element_bytes_(arithmetic.element_bytes()),
      slice_elements_((step_bytes
                           ? step_bytes
                           : block.buffer_bytes(static_cast<int>(Protocol::kSimple)) / kSteps) /
                      element_bytes_ * slices.steps_each),
      registered_(ends.registered),
      of_pairs_(ends.connection != 0) {
  begin_side(receive_, ends.receive_from, false, ends.connection);
  begin_side(send_, ends.send_to, true, ends.connection);
}

void Transfers::begin_side(Side& side, std::span<const int> ranks, bool sends, int connection) {
  for (const int rank : ranks) {
    if (rank < 0 || side.count == kMostPeers) break;
    Connection& peer = side.peers[side.count++];
    peer = Connection(block_.connection(rank, sends, connection));
    if (protocol_ != Protocol::kSimple) continue;
    // A chunk begins at a multiple of its steps; a receiver reports skipped steps to the sender.
    peer.step = rounded_up(peer.step, uint64_t{slices_.per_chunk} * slices_.steps_each);
    if (sends) continue;
    peer.set_freed(peer.step);
    if (in_place(peer)) peer.allow_user_buffer();
  }
}

Transfers::~Transfers() {
  for (const Connection& peer : receive_.all()) peer.save();
  for (const Connection& peer : send_.all()) peer.save();
}

Task Transfers::leave_buffers() {
  for (const Connection& peer : send_.all()) {
    while (in_place(peer) && !peer.sent(slices_.steps_each)) co_await block_.wait();
  }
}

Task Transfers::run(Transfer transfer) {
  switch (protocol_) {
    case Protocol::kLl: return ll(transfer);
    case Protocol::kLl128: return ll128(transfer);
    case Protocol::kSimple: break;
  }
  return simple(transfer);
}

// The result is made in the output, or else in the first buffer that is sent. Data that the NIC has
// put there stays there; data that the NIC reads elsewhere (nullptr) is not copied.
void Transfers::combine(const Transfer& transfer, std::span<char* const> received,
                        std::span<char* const> sent) const {
  const size_t bytes = transfer.elements * element_bytes_;
  const auto first = std::ranges::find_if(sent, [](const char* one) { return one != nullptr; });
  char* const result = transfer.output ? transfer.output : first == sent.end() ? nullptr : *first;
  if (bytes == 0 || result == nullptr) return;
  if (!received.empty() && received.front() == result) {
    received = received.subspan(1);
    if (transfer.input != nullptr) {
      arithmetic_.reduce(result, transfer.input, transfer.elements);
    }
  } else if (transfer.input != nullptr) {
    if (result != transfer.input) std::memcpy(result, transfer.input, bytes);
    if (transfer.input_is_own) arithmetic_.prepare(result, transfer.elements);
  } else {
    std::memcpy(result, received.front(), bytes);
    received = received.subspan(1);
  }
  for (const char* one : received) arithmetic_.reduce(result, one, transfer.elements);
  if (transfer.completes) arithmetic_.finish(result, transfer.elements);
  for (char* one : sent) {
    if (one != nullptr && one != result) std::memcpy(one, result, bytes);
  }
}

// Each slice waits until the buffers of all ends are there. A chunk always has all its slices,
// empty ones too, so that both ends count the same steps.
Task Transfers::simple(Transfer transfer) {
  constexpr size_t kAligned = 16;  // elements
  const auto steps = uint64_t{slices_.steps_each};
  size_t left = transfer.elements;
  size_t slice = std::max(rounded_up(left, kAligned * slices_.per_chunk) / slices_.per_chunk,
                          slice_elements_ / 32);
  Pointers received{};
  Pointers sent{};
  for (uint32_t number = 0; number < slices_.per_chunk; ++number) {
    slice = std::min(slice, left);
    if (transfer.receives) {
      for (size_t i = 0; i < receive_.count; ++i) {
        const Connection& peer = receive_.peers[i];
        while (peer.filled() < peer.step + steps) co_await block_.wait();
        received[i] = in_place(peer) ? transfer.place : peer.simple_buffer();
      }
    }
    if (transfer.sends) {
      for (size_t i = 0; i < send_.count; ++i) {
        const Connection& peer = send_.peers[i];
        while (!peer.has_room(steps)) co_await block_.wait();
        peer.announce(slice * element_bytes_);
        sent[i] = !in_place(peer)     ? peer.simple_buffer()
                  : transfer.receives ? transfer.place
                                      : nullptr;
      }
    }
    Transfer part = transfer;
    part.elements = slice;
    combine(part, {received.data(), transfer.receives ? receive_.count : 0},
            {sent.data(), transfer.sends ? send_.count : 0});
    if (transfer.sends) {
      for (Connection& peer : send_.all()) peer.set_filled(peer.step += steps);
    }
    if (transfer.receives) {
      for (Connection& peer : receive_.all()) peer.set_freed(peer.step += steps);
    }
    note_progress();
    left -= slice;
    if (transfer.input != nullptr) transfer.input += slice * element_bytes_;
    if (transfer.output != nullptr) transfer.output += slice * element_bytes_;
    if (transfer.place != nullptr) transfer.place += slice * element_bytes_;
  }
}

Task Transfers::receive_words(const uint64_t* from, size_t words, uint64_t flag,
                              uint32_t* to) const {
  for (size_t word = 0; word < words; ++word) {
    uint64_t seen = load_acquire(from + word);
    while ((seen ^ flag) >> 32 != 0) {
      co_await block_.wait();
      seen = load_acquire(from + word);
    }
    to[word] = static_cast<uint32_t>(seen);
  }
}

// Lines of 16 bytes: data, flag, data, flag, each 4 bytes. A flag is the number of the step, so
// that data and its arrival are one write.
Task Transfers::ll(Transfer transfer) {
  constexpr size_t kLine = 16;
  constexpr size_t kDataInLine = 8;
  constexpr size_t kLinesAtOnce = 256;
  // Before flags repeat, a whole buffer is written, so that no old flag is left.
  constexpr uint64_t kFlagsRepeat = 0x7ffffff8;
  const size_t step_bytes = block_.buffer_bytes(static_cast<int>(Protocol::kLl)) / kSteps;
  const size_t lines = rounded_up(transfer.elements * element_bytes_, kDataInLine) / kDataInLine;
  if (transfer.sends) {
    for (const Connection& peer : send_.all()) {
      while (!peer.has_room(1)) co_await block_.wait();
      peer.announce((peer.step & kFlagsRepeat) == kFlagsRepeat ? step_bytes : lines * kLine);
    }
  }
  const auto words = [&](const Connection& peer) {
    return reinterpret_cast<uint64_t*>(peer.flagged_buffer(Protocol::kLl, step_bytes));
  };
  std::array<uint32_t, 2 * kLinesAtOnce> result;
  std::array<uint32_t, 2 * kLinesAtOnce> other;
  std::array<uint32_t, 2 * kLinesAtOnce> one_more;
  for (size_t begin = 0; begin < lines; begin += kLinesAtOnce) {
    const size_t count = std::min(kLinesAtOnce, lines - begin);
    const size_t offset = begin * kDataInLine;
    Transfer part = transfer;
    part.elements =
        std::min(count * kDataInLine / element_bytes_, transfer.elements - offset / element_bytes_);
    if (part.input != nullptr) part.input += offset;
    Pointers received{reinterpret_cast<char*>(result.data()), reinterpret_cast<char*>(other.data()),
                      reinterpret_cast<char*>(one_more.data())};
    if (transfer.receives) {
      for (size_t i = 0; i < receive_.count; ++i) {
        const Connection& peer = receive_.peers[i];
        co_await receive_words(words(peer) + 2 * begin, 2 * count, flag_of(peer),
                               reinterpret_cast<uint32_t*>(received[i]));
      }
    }
    std::array<uint32_t, 2 * kLinesAtOnce> made;
    part.output = reinterpret_cast<char*>(made.data());
    combine(part, {received.data(), transfer.receives ? receive_.count : 0}, {});
    if (transfer.sends) {
      for (const Connection& peer : send_.all()) {
        uint64_t* const to = words(peer) + 2 * begin;
        for (size_t word = 0; word < 2 * count; ++word) {
          store_release(to + word, flag_of(peer) | made[word]);
        }
      }
    }
    if (transfer.output != nullptr) {
      std::memcpy(transfer.output + offset, made.data(), part.elements * element_bytes_);
    }
    note_progress();
  }
  if (transfer.receives) {
    for (Connection& peer : receive_.all()) peer.set_freed(++peer.step);
  }
  if (transfer.sends) {
    for (Connection& peer : send_.all()) {
      if ((peer.step & kFlagsRepeat) == kFlagsRepeat) {
        for (size_t word = 2 * lines; word < step_bytes / 8; ++word) {
          store_release(words(peer) + word, flag_of(peer));
        }
      }
      ++peer.step;
    }
  }
}

// Lines of 128 bytes, whose last 8 are the flag, in units of 16 lines. A GPU writes a line as a
// whole. A processor's copy of a buffer does not arrive line by line, so that over the network the
// proxy's count is waited for as well.
Task Transfers::ll128(Transfer transfer) {
  constexpr size_t kLineWords = 16;
  constexpr size_t kDataInLine = 120;
  constexpr size_t kLines = 16;
  constexpr size_t kUnitBytes = kLines * kDataInLine;
  const size_t step_bytes = block_.buffer_bytes(static_cast<int>(Protocol::kLl128)) / kSteps;
  const size_t bytes = transfer.elements * element_bytes_;
  const size_t units = (bytes + kUnitBytes - 1) / kUnitBytes;
  const auto words = [&](const Connection& peer, size_t unit) {
    return reinterpret_cast<uint64_t*>(peer.flagged_buffer(Protocol::kLl128, step_bytes)) +
           unit * kLines * kLineWords;
  };
  if (transfer.sends) {
    for (const Connection& peer : send_.all()) {
      while (!peer.has_room(1)) co_await block_.wait();
      peer.announce(units * kLines * kLineWords * sizeof(uint64_t));
    }
  }
  if (transfer.receives) {
    for (const Connection& peer : receive_.all()) {
      while (peer.over_network() && peer.filled() < peer.step + 1) co_await block_.wait();
    }
  }
  using Unit = std::array<char, kUnitBytes>;
  Unit result{};
  std::array<Unit, kMostPeers> arrived;
  for (size_t unit = 0; unit < units; ++unit) {
    Transfer part = transfer;
    part.elements = std::min(kUnitBytes, bytes - unit * kUnitBytes) / element_bytes_;
    if (part.input != nullptr) part.input += unit * kUnitBytes;
    Pointers received{arrived[0].data(), arrived[1].data(), arrived[2].data()};
    if (transfer.receives) {
      for (size_t i = 0; i < receive_.count; ++i) {
        const Connection& peer = receive_.peers[i];
        for (size_t line = 0; line < kLines; ++line) {
          const uint64_t* const from = words(peer, unit) + line * kLineWords;
          while (load_acquire(from + kLineWords - 1) != peer.step + 1) co_await block_.wait();
          std::memcpy(received[i] + line * kDataInLine, from, kDataInLine);
        }
      }
    }
    part.output = result.data();
    combine(part, {received.data(), transfer.receives ? receive_.count : 0}, {});
    if (transfer.sends) {
      for (const Connection& peer : send_.all()) {
        for (size_t line = 0; line < kLines; ++line) {
          uint64_t* const to = words(peer, unit) + line * kLineWords;
          std::memcpy(to, result.data() + line * kDataInLine, kDataInLine);
          store_release(to + kLineWords - 1, peer.step + 1);
        }
      }
    }
    if (transfer.output != nullptr) {
      std::memcpy(transfer.output + unit * kUnitBytes, result.data(),
                  part.elements * element_bytes_);
    }
    note_progress();
  }
  if (transfer.sends) {
    for (Connection& peer : send_.all()) {
      ++peer.step;
      if (peer.over_network()) peer.set_filled(peer.step);
    }
  }
  if (transfer.receives) {
    for (Connection& peer : receive_.all()) peer.set_freed(++peer.step);
  }
}

}  // namespace pacecar::nccl::cpu
