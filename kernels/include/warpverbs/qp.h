// The exported QP: where everything lies that a kernel needs to post by itself. Its layout is in
// layout/qp.h. Native byte order; addresses are the poster's own.
#pragma once

#include "warpverbs/layout/qp.h"
