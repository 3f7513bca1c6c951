// Errors as the interface reports them: a code to branch on, a sentence for people.
#pragma once

#include "transport/base/result.h"
