#include "transport/rma/windows.h"

#include <algorithm>
#include <utility>

namespace pacecar::rma {

Windows::~Windows() {
  for (const auto& [id, own] : own_) (void)context_->deregister_memory(nic_, own.memory);
}

Result<Place> Windows::register_own(const MemoryRange& range) {
  auto* const base = static_cast<uint8_t*>(range.address);
  const auto known = std::ranges::find_if(own_, [&](const auto& entry) {
    const Own& own = entry.second;
    return own.base == base && own.kind == range.kind && own.length >= range.length;
  });
  if (known != own_.end()) {
    ++known->second.registrations;
    return Place{known->first, window_of(*known->second.memory).value()};
  }
  const auto memory = context_->register_memory(nic_, range);
  if (!memory) return tl::unexpected(memory.error());
  const auto window = window_of(**memory);
  if (!window) {
    (void)context_->deregister_memory(nic_, *memory);
    return tl::unexpected(window.error());
  }
  const WindowId id = next_id_++;
  own_[id] = {.base = base, .length = range.length, .kind = range.kind, .memory = *memory};
  return Place{id, *window};
}

void Windows::release_own(WindowId id) {
  const auto own = own_.find(id);
  if (--own->second.registrations > 0) return;
  (void)context_->deregister_memory(nic_, own->second.memory);
  own_.erase(own);
}

bool Windows::announce(size_t rank, const Place& place) {
  if (announced_[rank].size() == kMostAhead) return false;
  announced_[rank].push_back(place);
  known_[rank][place.id].window = place.window;  // whoever has shared it may ask for bytes into it
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
  const auto known = std::ranges::find(shared_, places, &SharedWindow::places);
  if (known != shared_.end()) {
    ++known->shares;
    return &*known;
  }
  for (size_t rank = 0; rank < places.size(); ++rank) {
    Known& place = known_[rank][places[rank].id];
    place.window = places[rank].window;  // ours may not have come, or come again
    ++place.shares;
  }
  const Own& memory = own_.at(own.id);
  shared_.push_back({.memory = memory.memory,
                     .base = memory.base,
                     .host = memory.kind == MemoryKind::kHost,
                     .places = std::move(places),
                     .shares = 1});
  return &shared_.back();
}

void Windows::unshare(SharedWindow* window, size_t own_rank) {
  release_own(window->places[own_rank].id);
  if (--window->shares > 0) return;
  for (size_t rank = 0; rank < known_.size(); ++rank) {
    const auto known = known_[rank].find(window->places[rank].id);
    if (--known->second.shares == 0) known_[rank].erase(known);
  }
  shared_.remove_if([window](const SharedWindow& known) { return &known == window; });
}

uint8_t* Windows::own_bytes(WindowId id, uint64_t offset, uint64_t length) const {
  const auto own = own_.find(id);
  if (own == own_.end()) return nullptr;
  const bool inside = length <= own->second.length && offset <= own->second.length - length;
  return inside ? own->second.base + offset : nullptr;
}

uint64_t* Windows::own_word(WindowId id, uint64_t offset) const {
  uint8_t* const bytes = own_bytes(id, offset, sizeof(uint64_t));
  const bool fits = bytes != nullptr && own_.at(id).kind == MemoryKind::kHost &&
                    reinterpret_cast<uintptr_t>(bytes) % sizeof(uint64_t) == 0;
  return fits ? reinterpret_cast<uint64_t*>(bytes) : nullptr;
}

const Window* Windows::find(size_t rank, WindowId id) const {
  const auto known = known_[rank].find(id);
  return known == known_[rank].end() ? nullptr : &known->second.window;
}

}  // namespace pacecar::rma
