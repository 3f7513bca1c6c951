#include "net_plugin/libfabric/link/same_host.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include <algorithm>

namespace pacecar::fabric {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

MappedRing map_ring(int fd) {
  void* const mapped = mmap(nullptr, sizeof(SharedRing), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return MappedRing(mapped == MAP_FAILED ? nullptr : static_cast<SharedRing*>(mapped));
}

uint64_t pack(uint64_t message, uint32_t slot, size_t bytes) {
  return (message + 1) << 32 | uint64_t{slot} << 24 | bytes;
}

}  // namespace

void UnmapRing::operator()(SharedRing* ring) const { munmap(ring, sizeof *ring); }

std::unique_ptr<SharedSender> SharedSender::make() {
  FileDescriptor memory(memfd_create("pacecar-fi", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const bool made = memory && ftruncate(memory.get(), sizeof(SharedRing)) == 0 &&
                    fcntl(memory.get(), F_ADD_SEALS, kSeals) == 0;
  MappedRing ring = made ? map_ring(memory.get()) : nullptr;
  if (ring == nullptr) return nullptr;
  return std::unique_ptr<SharedSender>(new SharedSender(std::move(memory), std::move(ring)));
}

void SharedSender::post(uint32_t slot, size_t bytes) {
  ring_->entries[posted_ % kMaxMessages].store(pack(posted_, slot, bytes),
                                               std::memory_order_release);
  ++posted_;
  // Before must_wake_receiver(), as in rest(): at least one side sees what the other has written.
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

Result<uint64_t> SharedSender::consumed() const {
  const uint64_t consumed = ring_->consumed.load(std::memory_order_acquire);
  if (consumed > posted_) return fail(ErrorCode::kPeer, "a peer has read more than was sent");
  return consumed;
}

std::unique_ptr<SharedReceiver> SharedReceiver::map(const FileDescriptor& memory) {
  struct stat status {};
  const bool sound = (fcntl(memory.get(), F_GET_SEALS) & kSeals) == kSeals &&
                     fstat(memory.get(), &status) == 0 && status.st_size == sizeof(SharedRing);
  MappedRing ring = sound ? map_ring(memory.get()) : nullptr;
  if (ring == nullptr) return nullptr;
  return std::unique_ptr<SharedReceiver>(new SharedReceiver(std::move(ring)));
}

Result<std::span<const uint8_t>> SharedReceiver::next() {
  if (rests_) {
    rests_ = false;
    ring_->resting.store(false, std::memory_order_relaxed);
  }
  return peek();
}

Result<std::span<const uint8_t>> SharedReceiver::peek() const {
  const uint64_t entry = ring_->entries[consumed_ % kMaxMessages].load(std::memory_order_acquire);
  if (entry >> 32 != static_cast<uint32_t>(consumed_ + 1)) return std::span<const uint8_t>();
  const auto slot = static_cast<size_t>(entry >> 24 & 0xff);
  const auto bytes = static_cast<size_t>(entry & 0xffffff);
  if (slot >= kMaxMessages || bytes == 0 || bytes > kMessageBytes) {
    return fail(ErrorCode::kPeer, "a peer describes no valid message");
  }
  return std::span<const uint8_t>(ring_->slots[slot].data(), bytes);
}

Result<void> SharedReceiver::done() {
  ring_->consumed.store(++consumed_, std::memory_order_release);
  return {};
}

bool SharedReceiver::rest() {
  rests_ = true;
  ring_->resting.store(true, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const auto message = peek();
  return message && message->empty();
}

std::optional<PeerMemory> PeerMemory::open(pid_t process, uint64_t token_address,
                                           const Token& token) {
  const PeerMemory memory(process, token_address, token);
  const bool readable = process > 0 && memory.read_run(0, {}, memory.token_guard());
  return readable ? std::optional(memory) : std::nullopt;
}

bool PeerMemory::read(std::span<const RemoteSegment> from, std::span<const Piece> to, Part part,
                      const std::optional<Guard>& guard) const {
  const Guard last = guard.value_or(token_guard());
  bool whole = true;
  uint64_t position = 0;
  pair_pieces(
      from.size(), [&](size_t i) { return from[i].length; }, to.size(),
      [&](size_t j) { return to[j].size; },
      [&](size_t i, uint64_t from_offset, size_t j, uint64_t to_offset, uint64_t bytes) {
        // The run is at `position` of the whole.
        const uint64_t begin = std::max(position, part.offset);
        const uint64_t end = std::min(position + bytes, part.offset + part.bytes);
        if (whole && begin < end) {
          const uint64_t skipped = begin - position;
          whole = read_run(from[i].address + from_offset + skipped,
                           {to[j].data + to_offset + skipped, end - begin}, last);
        }
        position += bytes;
      });
  return whole;
}

// In one call, so that all is of one process, and in this order: the bytes were valid when read.
bool PeerMemory::read_run(uint64_t from, Piece to, const Guard& guard) const {
  Token token{};
  uint64_t value = 0;
  const iovec local[] = {{to.data, to.size}, {token.data(), sizeof token}, {&value, sizeof value}};
  const iovec remote[] = {{reinterpret_cast<void*>(from), to.size},
                          {reinterpret_cast<void*>(token_address_), sizeof token},
                          {reinterpret_cast<void*>(guard.address), sizeof value}};
  const ssize_t read = process_vm_readv(pid_, local, 3, remote, 3, 0);
  return read == static_cast<ssize_t>(to.size + sizeof token + sizeof value) && token == token_ &&
         value == guard.value;
}

}  // namespace pacecar::fabric
