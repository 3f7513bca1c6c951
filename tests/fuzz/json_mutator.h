// A mutator of JSON documents: it replaces values by others or by edge values, removes, repeats and
// adds members and elements. Input that does not parse, and one in eight documents, is mutated byte
// by byte. A fuzz target that includes this header uses it; without libFuzzer the header is empty.
#pragma once

#ifdef PACECAR_LIBFUZZER
#include <array>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "transport/base/prng.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace pacecar::fuzz {

using Json = nlohmann::ordered_json;

inline void list_values(Json& value, std::vector<Json*>& values) {
  values.push_back(&value);
  if (!value.is_structured()) return;
  for (Json& inner : value) list_values(inner, values);
}

inline Json edge_value(Prng& prng) {
  switch (prng.below(12)) {
    case 0: return nullptr;
    case 1: return prng.below(2) == 0;
    case 2: return 0;
    case 3: return -1;
    case 4: return UINT64_MAX;
    case 5: return INT64_MIN;
    case 6: return 1e308;
    case 7: return 0.5;
    case 8: return "";
    case 9: return std::string(prng.below(300), 'x');
    case 10: return Json::array();
    default: return Json::object();
  }
}

inline void change_json(Json& document, Prng& prng) {
  std::vector<Json*> values;
  list_values(document, values);
  Json& chosen = *values[prng.below(values.size())];
  Json& other = *values[prng.below(values.size())];
  const bool filled = chosen.is_structured() && !chosen.empty();
  switch (prng.below(6)) {
    case 0: chosen = edge_value(prng); return;
    case 1: chosen = Json(other); return;
    case 2:
      if (filled)
        chosen.erase(std::next(chosen.begin(), static_cast<long>(prng.below(chosen.size()))));
      return;
    case 3:
      if (filled && chosen.is_array()) chosen.push_back(Json(chosen[prng.below(chosen.size())]));
      return;
    case 4:
      if (chosen.is_number()) chosen = prng.next_u64() >> prng.below(64);
      return;
    default:
      if (chosen.is_array()) chosen.push_back(edge_value(prng));
  }
}

}  // namespace pacecar::fuzz

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  pacecar::Prng prng(seed);
  const std::string text(reinterpret_cast<const char*>(data), size);
  auto document = pacecar::fuzz::Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (document.is_discarded() || prng.below(8) == 0) return LLVMFuzzerMutate(data, size, max_size);
  for (uint64_t left = 1 + prng.below(3); left > 0; --left) {
    pacecar::fuzz::change_json(document, prng);
  }
  const std::string changed =
      document.dump(-1, ' ', false, pacecar::fuzz::Json::error_handler_t::replace);
  if (changed.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::memcpy(data, changed.data(), changed.size());
  return changed.size();
}
#endif
