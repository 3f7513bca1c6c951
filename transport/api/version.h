// The version of Pacecar and its interface. deploy/library/CMakeLists.txt compares it to project().
#pragma once

#define PACECAR_VERSION_MAJOR 0
#define PACECAR_VERSION_MINOR 1
#define PACECAR_VERSION_PATCH 0
