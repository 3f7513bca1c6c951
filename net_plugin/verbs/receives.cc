#include "net_plugin/verbs/receives.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "net_plugin/verbs/objects.h"

namespace pacecar::ibverbs {
namespace {

// The memory of a piece; null if it is in no region of the domain, or `write` is not allowed.
uint8_t* locate(ProcessNic& nic, const ibv_pd* pd, const ibv_sge& piece, bool write) {
  const auto found = nic.regions().find(piece.lkey);
  if (found == nic.regions().end()) return nullptr;
  const Region& region = *found->second;
  if (region.pd != pd || (write && (region.access & IBV_ACCESS_LOCAL_WRITE) == 0)) return nullptr;
  const uint64_t offset = piece.addr - region.iova;
  if (piece.length > region.length || offset > region.length - piece.length) return nullptr;
  return static_cast<uint8_t*>(region.addr) + offset;
}

}  // namespace

Bytes total_of(const ibv_sge* pieces, int count) {
  Bytes total = 0;
  for (int i = 0; i < count; ++i) total += pieces[i].length;
  return total;
}

template <typename Request>
int ScatterList::gather(ProcessNic& nic, const ibv_pd* pd, std::span<const ibv_sge> list,
                        bool filled, bool in_line, Request* request) {
  const auto place_of = [&](const ibv_sge& piece) {
    return in_line ? reinterpret_cast<uint8_t*>(piece.addr) : locate(nic, pd, piece, filled);
  };
  int count = 0;
  for (const ibv_sge& piece : list) {
    if (piece.length == 0) continue;
    ++count;
    request->local = place_of(piece);
    request->local_key = piece.lkey;
    if (request->local == nullptr) return EINVAL;
  }
  if (count == 0 || (count == 1 && !in_line)) return 0;
  staging = nic.staging().take(request->length);
  if (staging.data == nullptr) return ENOMEM;
  request->local = staging.data;
  request->local_key = staging.key;
  if (filled) {
    domain = pd;
    pieces.assign(list.begin(), list.end());
    return 0;
  }
  uint8_t* to = staging.data;
  for (const ibv_sge& piece : list) to = std::copy_n(place_of(piece), piece.length, to);
  return 0;
}

bool ScatterList::scatter(ProcessNic& nic, Bytes bytes) const {
  const uint8_t* from = staging.data;
  for (const ibv_sge& piece : pieces) {
    const size_t size = std::min<Bytes>(piece.length, bytes);
    if (size == 0) continue;
    uint8_t* const place = locate(nic, domain, piece, true);
    if (place == nullptr) return false;
    std::memcpy(place, from, size);
    from += size;
    bytes -= size;
  }
  return true;
}

void ScatterList::give_back(ProcessNic& nic) {
  nic.staging().give_back(staging);
  staging = {};
  pieces.clear();
}

int Receives::prepare(ProcessNic& nic, const ibv_pd* pd, const ibv_recv_wr& wr,
                      ReceiveRequest* request) {
  if (wr.num_sge < 0 || wr.num_sge > kMaxSge) return EINVAL;
  if (free_.empty()) return ENOMEM;
  const uint32_t number = free_.back();
  Slot& slot = slots_[number];
  *request = ReceiveRequest{.id = number, .length = total_of(wr.sg_list, wr.num_sge)};
  const std::span list(wr.sg_list, static_cast<size_t>(wr.num_sge));
  if (const int failed = slot.memory.gather(nic, pd, list, true, false, request); failed != 0) {
    return failed;
  }
  free_.pop_back();
  slot.wr_id = wr.wr_id;
  slot.order = order_++;
  slot.posted = true;
  return 0;
}

std::pair<uint64_t, bool> Receives::finish(ProcessNic& nic, uint64_t slot, Bytes bytes) {
  const std::pair finished{slots_[slot].wr_id, slots_[slot].memory.scatter(nic, bytes)};
  release(nic, static_cast<uint32_t>(slot));
  return finished;
}

void Receives::release(ProcessNic& nic, uint32_t slot) {
  slots_[slot].memory.give_back(nic);
  slots_[slot].posted = false;
  free_.push_back(slot);
}

std::vector<uint64_t> Receives::drop_all(ProcessNic& nic) {
  std::vector<uint32_t> left;
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].posted) left.push_back(i);
  }
  std::ranges::sort(left, {}, [this](uint32_t slot) { return slots_[slot].order; });
  std::vector<uint64_t> ids;
  for (const uint32_t slot : left) {
    ids.push_back(slots_[slot].wr_id);
    release(nic, slot);
  }
  return ids;
}

template int ScatterList::gather(ProcessNic& nic, const ibv_pd* pd, std::span<const ibv_sge> list,
                                 bool filled, bool in_line, WorkRequest* request);
template int ScatterList::gather(ProcessNic& nic, const ibv_pd* pd, std::span<const ibv_sge> list,
                                 bool filled, bool in_line, ReceiveRequest* request);

}  // namespace pacecar::ibverbs
