// In place of MORI's own header of this name, which brings its copy engines: of its core, RDMA alone.
#pragma once
#include "mori/core/transport/rdma/rdma_device.hpp"
#include "mori/core/utils/utils.hpp"
