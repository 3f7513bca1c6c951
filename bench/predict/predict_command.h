// `pacecar predict`: how long collectives take on a described cluster.
#pragma once

namespace pacecar {

int run_predict(int argc, char** argv);

}  // namespace pacecar
