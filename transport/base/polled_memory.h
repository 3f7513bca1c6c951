// Words of memory that one side writes while another polls them, without other synchronization: a
// peer's NIC, or a thread in its place, and a reader. Such memory is read and written by these
// functions only. Each is one plain instruction on x86; in C++ anything less would be a data race.
#pragma once

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace pacecar {

// Earlier writes are visible, too.
template <std::unsigned_integral Word>
[[gnu::always_inline]] inline Word load_polled(const Word& word) {
  return __atomic_load_n(&word, __ATOMIC_ACQUIRE);
}

// Word by word: it may be written meanwhile, so the record must have a check of its own.
template <typename Record>
requires(std::is_trivially_copyable_v<Record> && alignof(Record) >= sizeof(uint64_t)) inline Record
    load_polled_record(const Record& record) {
  using Aliasing [[gnu::may_alias]] = uint64_t;
  const auto* const words = reinterpret_cast<const Aliasing*>(&record);
  std::array<uint64_t, sizeof(Record) / sizeof(uint64_t)> copy;
  for (size_t i = 0; i < copy.size(); ++i) copy[i] = __atomic_load_n(&words[i], __ATOMIC_ACQUIRE);
  return std::bit_cast<Record>(copy);
}

// At an aligned place; becomes visible as a whole, and after earlier writes.
template <std::unsigned_integral Word>
[[gnu::always_inline]] inline void store_polled(uint8_t* place, Word word) {
  using Aliasing [[gnu::may_alias]] = Word;
  __atomic_store_n(reinterpret_cast<Aliasing*>(place), word, __ATOMIC_RELEASE);
}

// Copies a payload into place in ascending order, in stores of at least 8 aligned bytes.
// Why not memcpy: a reader may poll the destination while it is written (NCCL's LL and LL128
// protocols do, from a GPU). It needs 8-byte stores that are never torn, and flags that never
// become visible before the data before them; memcpy may write a block's end first.
void ordered_copy(uint8_t* destination, const uint8_t* source, size_t length);

}  // namespace pacecar
