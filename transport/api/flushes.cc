#include "transport/api/flushes.h"

#include <algorithm>

namespace pacecar {

Result<std::optional<FlushId>> Flushes::start(std::span<const RunningNic> nics,
                                              const Memory& memory, const uint8_t* data) {
  if (memory.host()) return std::nullopt;
  std::array<Read, kMaxLanes> reads;
  size_t count = 0;
  bool all_read = true;
  for (size_t i = 0; i < nics.size(); ++i) {
    Read read{.engine = nics[i].engine.get()};
    const auto number =
        read.engine->exclusively([&](Messenger& messenger, NicMemory& nic, Instant) {
          read.received = messenger.counters().bytes_received;
          return nic.start_flush(memory.region(i), data);
        });
    if (!number) {
      const std::lock_guard lock(mutex_);
      if (!covered({read.engine, memory.gpu()}, read.received)) {
        return tl::unexpected(number.error());
      }
    } else if (*number) {
      read.number = **number;
      reads[count++] = read;
    } else {
      all_read = false;
    }
  }
  if (count == 0) return std::nullopt;
  if (!all_read) {
    return fail(ErrorCode::kUnavailable,
                "some of the joined NICs cannot flush GPU memory: join NICs of one kind");
  }
  return add(memory.gpu(), std::span(reads).first(count));
}

FlushId Flushes::add(int gpu, std::span<const Read> reads) {
  const std::lock_guard lock(mutex_);
  Flush& flush = flushes_[++last_];
  flush.gpu = gpu;
  std::ranges::copy(reads, flush.reads.begin());
  flush.left = reads.size();
  return last_;
}

Result<bool> Flushes::done(FlushId id) {
  const std::lock_guard lock(mutex_);
  const auto found = flushes_.find(id);
  if (found == flushes_.end()) return true;
  Flush& flush = found->second;
  Result<bool> through = true;
  for (; through && flush.left > 0; --flush.left) {
    const Read& read = flush.reads[flush.left - 1];
    const Writer writer{read.engine, flush.gpu};
    through = read.engine->exclusively(
        [&](Messenger&, NicMemory& nic, Instant) { return nic.flushed(read.number); });
    if (through && !*through) return false;
    if (through) covered_[writer] = std::max(covered_[writer], read.received);
    if (!through && covered(writer, read.received)) through = true;
  }
  flushes_.erase(found);
  return through;
}

bool Flushes::covered(const Writer& writer, uint64_t received) const {
  const auto found = covered_.find(writer);
  return received == 0 || (found != covered_.end() && found->second >= received);
}

}  // namespace pacecar
