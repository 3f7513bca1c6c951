#include "transport/rma/windows.h"

#include <algorithm>
#include <utility>

#include "transport/api/memory.h"
#include "transport/api/plugin_calls.h"
#include "transport/base/return_if_error.h"

namespace pacecar::rma {

Windows::~Windows() {
  for (const auto& [id, own] : own_) deregister(own);
}

Result<Place> Windows::register_own(const MemoryRange& range) {
  auto* const base = static_cast<uint8_t*>(range.address);
  const auto known = std::ranges::find_if(own_, [&](const auto& entry) {
    const OwnMemory& own = entry.second;
    return own.base == base && own.length >= range.length &&
           (own.copies == nullptr) == (range.kind == MemoryKind::kHost);
  });
  if (known != own_.end()) {
    ++known->second.registrations;
    return known->second.place;
  }
  ASSIGN_OR_RETURN(auto own, make_own(range));
  const WindowId id = own.place.id = next_id_++;
  own_[id] = std::move(own);
  list_gpus();
  return own_[id].place;
}

Result<OwnMemory> Windows::make_own(const MemoryRange& range) {
  ASSIGN_OR_RETURN(const auto memory, context_->register_memory(nic_, range));
  OwnMemory own{.base = static_cast<uint8_t*>(range.address),
                .length = range.length,
                .memory = memory,
                .copies = memory->staged()};
  if (own.copies != nullptr) {
    own.place.staged = true;
    own.place.window.length = range.length;
    return own;
  }
  const auto window = window_of(*memory);
  auto copies = range.kind == MemoryKind::kCuda && window
                    ? copies_of(*context_, range)
                    : Result<std::shared_ptr<StagedRange>>(nullptr);
  if (!window || !copies) {
    (void)context_->deregister_memory(nic_, memory);
    return tl::unexpected(window ? copies.error() : window.error());
  }
  own.place.window = *window;
  own.copies = std::move(*copies);
  return own;
}

// Waits for copies of words before the memory is released.
void Windows::deregister(const OwnMemory& own) {
  if (own.copies != nullptr) own.copies->withdraw();
  (void)context_->deregister_memory(nic_, own.memory);
}

void Windows::list_gpus() {
  gpus_.clear();
  for (const auto& [id, own] : own_) {
    if (own.copies == nullptr) continue;
    auto gpu = std::ranges::find(gpus_, own.copies->engine(), &WindowGpu::engine);
    if (gpu == gpus_.end()) gpu = gpus_.insert(gpu, WindowGpu{.engine = own.copies->engine()});
    if (own.place.staged) continue;
    gpu->direct = own.memory;
    gpu->base = own.base;
  }
}

std::optional<OwnMemory> Windows::release_own(WindowId id) {
  const auto own = own_.find(id);
  if (--own->second.registrations > 0) return std::nullopt;
  auto released = std::move(own_.extract(own).mapped());
  list_gpus();
  return released;
}

bool Windows::announce(size_t rank, const Place& place) {
  if (announced_[rank].size() == kMostAhead) return false;
  announced_[rank].push_back(place);
  known_[rank][place.id].place = place;  // the peer may request gets into it already
  return true;
}

bool Windows::all_announced() const {
  return std::ranges::none_of(announced_, [](const auto& places) { return places.empty(); });
}

SharedWindow* Windows::take_announced(size_t own_rank, const Place& own) {
  std::vector<Place> places;
  for (std::deque<Place>& announced : announced_) {
    places.push_back(announced.front());
    announced.pop_front();
  }
  places[own_rank] = own;
  const auto same = std::ranges::find(shared_, places, &SharedWindow::places);
  if (same != shared_.end()) {
    ++same->shares;
    return &*same;
  }
  for (size_t rank = 0; rank < places.size(); ++rank) {
    Known& known = known_[rank][places[rank].id];
    known.place = places[rank];  // ours may be missing, or be shared again
    ++known.shares;
  }
  const OwnMemory& memory = own_.at(own.id);
  shared_.push_back(
      {.memory = memory.memory, .base = memory.base, .places = std::move(places), .shares = 1});
  return &shared_.back();
}

std::optional<OwnMemory> Windows::unshare(SharedWindow* window, size_t own_rank) {
  auto released = release_own(window->places[own_rank].id);
  if (--window->shares > 0) return released;
  for (size_t rank = 0; rank < known_.size(); ++rank) {
    const auto known = known_[rank].find(window->places[rank].id);
    const bool again = std::ranges::count(announced_[rank], known->second.place) > 0;
    if (--known->second.shares == 0 && !again) known_[rank].erase(known);
  }
  shared_.remove_if([window](const SharedWindow& known) { return &known == window; });
  return released;
}

uint8_t* Windows::own_bytes(WindowId id, uint64_t offset, uint64_t length) const {
  const auto own = own_.find(id);
  if (own == own_.end()) return nullptr;
  const bool inside = length <= own->second.length && offset <= own->second.length - length;
  return inside ? own->second.base + offset : nullptr;
}

std::optional<Word> Windows::own_word(WindowId id, uint64_t offset) const {
  uint8_t* const bytes = own_bytes(id, offset, sizeof(uint64_t));
  if (bytes == nullptr || reinterpret_cast<uintptr_t>(bytes) % sizeof(uint64_t) != 0) {
    return std::nullopt;
  }
  return Word{reinterpret_cast<uint64_t*>(bytes), own_copies(id)};
}

const Place* Windows::find(size_t rank, WindowId id) const {
  const auto known = known_[rank].find(id);
  return known == known_[rank].end() ? nullptr : &known->second.place;
}

}  // namespace pacecar::rma
