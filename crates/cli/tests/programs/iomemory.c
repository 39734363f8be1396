// A program that maps doorbell registers into a GPU, as CUDA's runtime does it: the driver's functions
// are looked up by dlsym and cuGetProcAddress. Compiled with DRIVER it is the driver, which like
// NVIDIA's refuses ordinary memory as I/O memory. It exports any memory as a dmabuf, of which the file
// alone is of use.
//
// iomemory DRIVER: exits with 0 if registers are registered, whole pages of them, and nothing else.
#define _GNU_SOURCE
#ifdef DRIVER
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

uintptr_t registered[16];
int count;

int cuMemHostRegister_v2(void *at, unsigned long len, unsigned flags) {
    if (flags & 4) return 1;
    if (len == 4096 && ((uintptr_t)at & 4095) == 0) registered[count++] = (uintptr_t)at;
    return 0;
}
int cuMemHostUnregister(void *at) {
    for (int i = 0; i < count; i++)
        if (registered[i] == (uintptr_t)at) return registered[i] = registered[--count], 0;
    return 713;
}
int cuMemGetHandleForAddressRange(int *handle, uint64_t at, unsigned long len, int kind, uint64_t flags) {
    if (!at || !len || kind != 1 || flags) return 1;
    return (*handle = memfd_create("dmabuf", 0)) < 0;
}
int cuOther(void) { return 77; }
int cuGetProcAddress_v2(const char *name, void **found, int version, uint64_t flags, void *status) {
    (void)version, (void)flags, (void)status;
    if (!strcmp(name, "cuMemHostRegister")) return *found = (void *)cuMemHostRegister_v2, 0;
    if (!strcmp(name, "cuMemHostUnregister")) return *found = (void *)cuMemHostUnregister, 0;
    if (!strcmp(name, "cuGetProcAddress")) return *found = (void *)cuGetProcAddress_v2, 0;
    if (!strcmp(name, "cuOther")) return *found = (void *)cuOther, 0;
    return *found = 0, 500;
}
#else
#include "verbs_pair.h"
#include <dlfcn.h>

typedef int (*get_address)(const char *, void **, int, uint64_t, void *);
typedef int (*map)(void *, unsigned long, unsigned);
typedef int (*unmap)(void *);

static void *of(get_address get, const char *name) {
    void *found = NULL;
    int code = get(name, &found, 12000, 0, NULL);
    CHECK((code == 0) == (found != NULL));
    return found;
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    open_devices();
    void *driver = dlopen(argv[1], RTLD_NOW);
    CHECK(driver);
    get_address get = (get_address)dlsym(driver, "cuGetProcAddress_v2");
    CHECK(get);
    get = (get_address)of(get, "cuGetProcAddress");
    map host_register = (map)of(get, "cuMemHostRegister");
    unmap host_unregister = (unmap)of(get, "cuMemHostUnregister");
    CHECK(host_register && host_unregister);
    CHECK(((int (*)(void))of(get, "cuOther"))() == 77 && !of(get, "cuMissing"));
    CHECK(!dlsym(driver, "cuMissing") && (int *)dlsym(driver, "count"));
    // The caller of dlsym decides where RTLD_NEXT looks, and it is still this program.
    CHECK(dlsym(RTLD_NEXT, "puts") == dlsym(RTLD_DEFAULT, "puts") && !dlsym(RTLD_NEXT, "main"));
    int *count = dlsym(driver, "count");
    uintptr_t *registered = dlsym(driver, "registered");

    struct mlx5dv_devx_uar *uar = mlx5dv_devx_alloc_uar(context[0], MLX5DV_UAR_ALLOC_TYPE_BF);
    CHECK(uar);
    char *at = uar->reg_addr, *page = (char *)((uintptr_t)at & ~(PAGE - 1));
    // Two registers of a page, by both ways of finding the function.
    CHECK(host_register(at, 8, 7) == 0 && *count == 1 && registered[0] == (uintptr_t)page);
    CHECK(((map)dlsym(driver, "cuMemHostRegister_v2"))(at + 8, 8, 7) == 0 && *count == 1);
    CHECK(host_unregister(at) == 0 && *count == 1);
    CHECK(host_unregister(at + 8) == 0 && *count == 0);
    CHECK(host_unregister(at) == 713);
    // Not beyond the page, and not what is no register.
    CHECK(host_register(page + PAGE - 4, 8, 7) == 1);
    CHECK(host_register(fresh(), 8, 7) == 1);
    CHECK(host_register(fresh(), PAGE, 3) == 0 && *count == 1);
    mlx5dv_devx_free_uar(uar);
    others_work();
    puts("done");
    return 0;
}
#endif
