// The version of Pacecar and of its interface, as in CMakeLists.txt, which holds it to that.
#pragma once

#define PACECAR_VERSION_MAJOR 0
#define PACECAR_VERSION_MINOR 1
#define PACECAR_VERSION_PATCH 0
