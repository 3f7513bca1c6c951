// The matrix as a page that a browser opens from disk, without a network: page/.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace pacecar::hosts {

// Of PairResults::document(); each pair's own results are left out.
std::string matrix_page(nlohmann::json document);

}  // namespace pacecar::hosts
