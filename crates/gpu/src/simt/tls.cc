// The word that kernels and the SIMT scheduler share; its layout is asserted here and in abi.rs.
#include "warpverbs/arch/simt.h"

static_assert(sizeof(wv_simt_lane) == 56 && alignof(wv_simt_lane) == 8, "wv_simt_lane");
static_assert(__builtin_offsetof(wv_simt_lane, line) == 28, "wv_simt_lane::line");
static_assert(__builtin_offsetof(wv_simt_lane, file) == 40, "wv_simt_lane::file");
static_assert(__builtin_offsetof(wv_simt_lane, addr) == 48, "wv_simt_lane::addr");
static_assert(sizeof(wv_simt_tls) == 16, "wv_simt_tls");
static_assert(__builtin_offsetof(wv_simt_tls, self) == 8, "wv_simt_tls::self");

extern "C" {
__thread wv_simt_tls wv_simt_current = {};

wv_simt_tls* wv_simt_tls_here() { return &wv_simt_current; }
}
