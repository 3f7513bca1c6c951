#include "tests/support/hostile_verbs/memory.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <utility>

#include "transport/base/polled_memory.h"

namespace pacecar::hostile {
namespace {

struct GpuMemory {
  size_t length;
  uint8_t* seen_by_gpu;
  int file;
};

class GpuMemories {
 public:
  std::mutex mutex;
  std::map<const uint8_t*, GpuMemory> by_address;

  static GpuMemories& instance() {
    static GpuMemories* const all = new GpuMemories;  // outlives every device
    return *all;
  }
  // Null: `address` is in none. Sets `offset` otherwise.
  const GpuMemory* find(const void* address, size_t& offset) const {
    const auto* byte = static_cast<const uint8_t*>(address);
    auto found = by_address.upper_bound(byte);
    if (found == by_address.begin()) return nullptr;
    --found;
    offset = static_cast<size_t>(byte - found->first);
    return offset < found->second.length ? &found->second : nullptr;
  }
};

// Pieces of this size land in any order.
constexpr size_t kPiece = 32;
constexpr size_t kPieces = 8;  // of a packet, at most
// How much later data lands in GPU memory than in host memory.
constexpr uint64_t kGpuLate = 64;

}  // namespace

void* allocate_gpu_memory(size_t length) {
  const int file = memfd_create("gpu", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(length)) != 0) throw std::bad_alloc();
  void* const forbidden = mmap(nullptr, length, PROT_NONE, MAP_SHARED, file, 0);
  void* const seen = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (forbidden == MAP_FAILED || seen == MAP_FAILED) throw std::bad_alloc();
  GpuMemories& all = GpuMemories::instance();
  const std::lock_guard lock(all.mutex);
  all.by_address[static_cast<uint8_t*>(forbidden)] = {length, static_cast<uint8_t*>(seen), file};
  return forbidden;
}

void free_gpu_memory(void* address) {
  GpuMemories& all = GpuMemories::instance();
  const std::lock_guard lock(all.mutex);
  const auto found = all.by_address.find(static_cast<uint8_t*>(address));
  if (found == all.by_address.end()) return;
  munmap(address, found->second.length);
  munmap(found->second.seen_by_gpu, found->second.length);
  close(found->second.file);
  all.by_address.erase(found);
}

int dma_buf_of(const void* address) {
  GpuMemories& all = GpuMemories::instance();
  const std::lock_guard lock(all.mutex);
  size_t offset = 0;
  const GpuMemory* memory = all.find(address, offset);
  return memory == nullptr ? -1 : dup(memory->file);
}

uint8_t* as_gpu_sees(const void* address) {
  GpuMemories& all = GpuMemories::instance();
  const std::lock_guard lock(all.mutex);
  size_t offset = 0;
  const GpuMemory* memory = all.find(address, offset);
  return memory == nullptr ? nullptr : memory->seen_by_gpu + offset;
}

// --- regions ---

Region::~Region() {
  if (mapped) munmap(memory, length);
}

Region* Regions::add(ibv_pd* domain, void* address, uint64_t length, uint64_t begin, int access) {
  auto region = std::make_unique<Region>();
  region->memory = static_cast<uint8_t*>(address);
  if (uint8_t* const gpu = as_gpu_sees(address)) {
    region->memory = gpu;
    region->gpu = true;
  }
  region->begin = begin;
  region->length = length;
  region->access = access;
  return keep(std::move(region), domain, address);
}

Region* Regions::add_dma_buf(ibv_pd* domain, int fd, uint64_t offset, uint64_t length,
                             uint64_t begin, int access) {
  struct stat status {};
  if (fstat(fd, &status) != 0) return nullptr;
  if (offset + length < offset || offset + length > static_cast<uint64_t>(status.st_size)) {
    errno = EINVAL;
    return nullptr;
  }
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  if (offset % page != 0) {
    errno = EINVAL;
    return nullptr;
  }
  void* const memory =
      mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(offset));
  if (memory == MAP_FAILED) return nullptr;
  auto region = std::make_unique<Region>();
  region->memory = static_cast<uint8_t*>(memory);
  region->gpu = region->mapped = true;
  region->begin = begin;
  region->length = length;
  region->access = access;
  return keep(std::move(region), domain, nullptr);
}

Region* Regions::keep(std::unique_ptr<Region> region, ibv_pd* domain, void* address) {
  while (by_key_.contains(next_key_)) next_key_ += 0x100;
  region->verbs = {.context = domain->context,
                   .pd = domain,
                   .addr = address,
                   .length = region->length,
                   .handle = next_key_,
                   .lkey = next_key_,
                   .rkey = next_key_};
  next_key_ += 0x101;
  return (by_key_[region->verbs.lkey] = std::move(region)).get();
}

Region* Regions::find(uint32_t key, const ibv_pd* domain) const {
  const auto found = by_key_.find(key);
  return found == by_key_.end() || found->second->verbs.pd != domain ? nullptr
                                                                     : found->second.get();
}

bool Regions::any_in(const ibv_pd* domain) const {
  return std::ranges::any_of(by_key_,
                             [&](const auto& each) { return each.second->verbs.pd == domain; });
}

void Regions::list(std::vector<std::span<const uint8_t>>& all) const {
  for (const auto& [key, region] : by_key_) {
    const ibv_mr& verbs = region->verbs;
    if (verbs.addr != nullptr) all.emplace_back(static_cast<uint8_t*>(verbs.addr), verbs.length);
  }
}

// --- landing ---

void Landing::write(Region& region, uint64_t address, const std::vector<uint8_t>& data) {
  if (data.empty()) return;
  if (steps_.empty() || steps_.back().then) steps_.emplace_back();
  const size_t size = std::max(kPiece, (data.size() / kPieces + kPiece - 1) / kPiece * kPiece);
  const bool relaxed =
      behavior_.relaxed_ordering || (region.access & IBV_ACCESS_RELAXED_ORDERING) != 0;
  auto& pieces = region.gpu ? gpu_ : steps_.back().pieces;
  for (size_t at = 0; at < data.size();) {
    // Aligned in memory, not in the packet.
    const size_t into = (address + at) % kPiece;
    const size_t length = std::min(size - into, data.size() - at);
    const auto begin = data.begin() + static_cast<ptrdiff_t>(at);
    pieces.push_back(
        {region.at(address + at), {begin, begin + static_cast<ptrdiff_t>(length)}, relaxed});
    at += length;
  }
}

void Landing::then(std::function<void()> what) {
  if (steps_.empty() || steps_.back().then) steps_.emplace_back();
  steps_.back().then = std::move(what);
}

void Landing::advance() {
  const uint64_t late = behavior_.late_landing;
  if (!gpu_.empty() && prng_.below(late * kGpuLate + 1) == 0) land_some(gpu_, true);
  if (prng_.below(late + 1) > 0) return;
  if (behavior_.relaxed_ordering) {  // later data may overtake, later completions may not
    for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) land_some(step->pieces, true);
  }
  while (!steps_.empty()) {
    Step& step = steps_.front();
    land_some(step.pieces, step.pieces.empty() ? false : step.pieces.front().relaxed);
    if (!step.pieces.empty()) return;
    const auto then = std::move(step.then);
    steps_.pop_front();
    if (then) then();
  }
}

// Lands all pieces, or some if data lands late.
void Landing::land_some(std::vector<Piece>& pieces, bool relaxed) {
  if (relaxed) {
    for (size_t i = pieces.size(); i > 1; --i) std::swap(pieces[i - 1], pieces[prng_.below(i)]);
  }
  size_t count = pieces.size();
  if (behavior_.late_landing > 0) count = prng_.below(count + 1);
  const auto end = pieces.begin() + static_cast<ptrdiff_t>(count);
  std::for_each(pieces.begin(), end, land);
  pieces.erase(pieces.begin(), end);
}

void Landing::land(const Piece& piece) {
  // Aligned 8 bytes at once: they are never seen half written.
  const auto misaligned = reinterpret_cast<uintptr_t>(piece.to) % sizeof(uint64_t);
  size_t at = 0;
  if (misaligned == 0) {
    for (; at + sizeof(uint64_t) <= piece.data.size(); at += sizeof(uint64_t)) {
      uint64_t word = 0;
      std::memcpy(&word, piece.data.data() + at, sizeof word);
      store_polled(piece.to + at, word);
    }
  }
  std::memcpy(piece.to + at, piece.data.data() + at, piece.data.size() - at);
}

void Landing::finish() {
  for (const Piece& piece : std::exchange(gpu_, {})) land(piece);
  while (!steps_.empty()) {
    const Step step = std::move(steps_.front());
    steps_.pop_front();
    for (const Piece& piece : step.pieces) land(piece);
    if (step.then) step.then();
  }
}

}  // namespace pacecar::hostile
