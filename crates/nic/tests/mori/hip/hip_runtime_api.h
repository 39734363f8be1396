// What MORI's structures name of HIP's host interface.
#pragma once
struct hipIpcMemHandle_t {
    char reserved[64];
};
