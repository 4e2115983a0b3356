// Everything of the public API.
#pragma once

#include "rullama/adapter.h"
#include "rullama/model.h"
#include "rullama/result.h"
#include "rullama/sampling.h"
#include "rullama/session.h"
#include "rullama/training.h"
