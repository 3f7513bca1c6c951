#include "bench/ab/report/report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "transport/base/check.h"

namespace pacecar {
namespace {

constexpr std::string_view kOpen = "{{";
constexpr std::string_view kClose = "}}";

std::string_view part(std::span<const PagePart> own, std::string_view name) {
  for (const auto parts : {own, page_parts()}) {
    const auto found = std::ranges::find(parts, name, &PagePart::name);
    if (found != parts.end()) return found->text;
  }
  PACECAR_CHECK(false);
  return {};
}

// JSON within a script element: a name with "</script>" in it must not end the element, nor "<!--"
// begin a comment.
std::string data_block(const nlohmann::json& data) {
  const std::string text =
      data.dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace);
  std::string block;
  block.reserve(text.size());
  for (const char c : text) block += c == '<' ? "\\u003c" : std::string(1, c);
  return block;
}

}  // namespace

std::string page_of(std::span<const PagePart> own, std::string_view name,
                    const nlohmann::json& data) {
  std::string_view rest = part(own, name);
  std::string result;
  for (size_t open = rest.find(kOpen); open != rest.npos; open = rest.find(kOpen)) {
    const size_t close = rest.find(kClose, open);
    PACECAR_CHECK(close != rest.npos);
    const std::string_view mark = rest.substr(open + kOpen.size(), close - open - kOpen.size());
    result += rest.substr(0, open);
    result += mark == "data" ? data_block(data) : std::string(part(own, mark));
    rest.remove_prefix(close + kClose.size());
  }
  return result.append(rest);
}

}  // namespace pacecar
