// The part of HIP's host interface that MORI's structures name.
#pragma once
struct hipIpcMemHandle_t {
    char reserved[64];
};
