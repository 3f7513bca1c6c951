// The matrix as a page that a browser opens from disk, without a network: page/.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace pacecar::hosts {

// From PairResults::document(), without each pair's own results.
std::string matrix_page(nlohmann::json document);

}  // namespace pacecar::hosts
