// A program that has its devices only consume for a while.
//
// consume ON: ON is 1 under `warpverbs run --consume`. Exits with 0 if WRITEs move their payload while
// the devices execute work, complete without moving it while they do not, and no other function changes.
#define _GNU_SOURCE
#include "verbs_pair.h"
#include <dlfcn.h>

int main(int argc, char **argv) {
    CHECK(argc == 2);
    int on = atoi(argv[1]);
    int (*consume)(int) = (int (*)(int))dlsym(RTLD_DEFAULT, "warpverbs_consume");
    CHECK(consume);
    CHECK(on || consume(0) == 0);
    open_devices();
    int devices = context[1] == context[0] ? 1 : 2;
    struct pair p = make_pair();
    struct ibv_mr *from = registered(0), *to = registered(1);
    uint64_t *source = from->addr;
    volatile uint64_t *target = to->addr;
    // Rings of 64 go round several times in either state.
    for (uint64_t round = 1; round < 1000; round++) {
        if (round % 100 == 0) CHECK(consume(on = !on) == devices);
        uint64_t before = *target;
        *source = round;
        CHECK(one(&p, IBV_WR_RDMA_WRITE, from, to, 8) == IBV_WC_SUCCESS);
        CHECK(*target == (on ? before : round));
    }
    puts("done");
    fflush(stdout);
    _exit(0);
}
