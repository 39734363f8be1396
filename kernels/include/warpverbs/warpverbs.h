// Everything a kernel needs to post RDMA work.
#pragma once

#include "warpverbs/atomic.h"
#include "warpverbs/coop.h"
#include "warpverbs/get.h"
#include "warpverbs/put.h"
#include "warpverbs/qp.h"
#include "warpverbs/send.h"
#include "warpverbs/signal.h"
#include "warpverbs/status.h"
#include "warpverbs/verbs.h"
#include "warpverbs/wait.h"
