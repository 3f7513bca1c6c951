// The files of the report's page, as the build embedded them (embed.cmake).
#pragma once

#include <span>
#include <string_view>

namespace pacecar {

struct PagePart {
  std::string_view name;  // without its folder
  std::string_view text;
};

std::span<const PagePart> page_parts();

}  // namespace pacecar
