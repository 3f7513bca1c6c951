#include "bench/hosts/matrix_page.h"

#include <nlohmann/json.hpp>

#include "bench/ab/report/report.h"

namespace pacecar {
std::span<const PagePart> matrix_page_parts();  // by the build
}  // namespace pacecar

namespace pacecar::hosts {

std::string matrix_page(nlohmann::json document) {
  for (auto& pair : document["pairs"]) pair.erase("results");
  return page_of(matrix_page_parts(), "matrix.html", document);
}

}  // namespace pacecar::hosts
