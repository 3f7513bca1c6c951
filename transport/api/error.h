// Errors of the interface: a code to branch on, and a sentence for people.
#pragma once

#include "transport/base/result.h"
