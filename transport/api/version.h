// The version of Pacecar and of its interface; CMakeLists.txt checks that it has the same.
#pragma once

#define PACECAR_VERSION_MAJOR 0
#define PACECAR_VERSION_MINOR 1
#define PACECAR_VERSION_PATCH 0
