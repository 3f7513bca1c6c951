// Pages: one HTML file with its data and all scripts, which needs no network. "page.html" is the
// report of an experiment (bench/ab/report_data.h). A page's parts are files of this folder,
// embedded at build time. Any thread.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

namespace pacecar {

struct PagePart {
  std::string_view name;  // without its folder
  std::string_view text;
};
// The files of the report's page, as the build embedded them (embed.cmake).
std::span<const PagePart> page_parts();

// The part `name`, with each {{part}} replaced by that part of `own` or of this folder, and
// {{data}} by the data, escaped for a script element. Marks in inserted text are not replaced.
std::string page_of(std::span<const PagePart> own, std::string_view name,
                    const nlohmann::json& data);

}  // namespace pacecar
