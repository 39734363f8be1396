// A program that takes away memory from the device that it has given to it.
//
// unmapped CASE: exits with 0 if the device ends the requests concerned with an error, goes on
// with others, and leaves the program's signals alone.
#define _GNU_SOURCE
#include "verbs_pair.h"
#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

// Payload, of either side and of every length, while requests are under way.
static void payload(void) {
    static const uint32_t lengths[] = {8, 100, PAGE, BYTES};
    static const enum ibv_wr_opcode opcodes[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD};
    for (int o = 0; o < 3; o++)
        for (int l = 0; l < (o == 2 ? 1 : 4); l++)
            for (int side = 0; side < 2; side++) {
                struct pair p = make_pair();
                struct ibv_mr *mr[2] = {registered(0), registered(1)};
                CHECK(one(&p, opcodes[o], mr[0], mr[1], lengths[l]) == IBV_WC_SUCCESS);
                int posted = 0;
                for (; posted < DEPTH / 2; posted++) CHECK(post(&p, opcodes[o], mr[0], mr[1], lengths[l]) == 0);
                CHECK(munmap(mr[side]->addr, BYTES) == 0);
                for (; posted < DEPTH; posted++) CHECK(post(&p, opcodes[o], mr[0], mr[1], lengths[l]) == 0);
                // Success until the memory is gone, then an error of that side, then flushes.
                int failed = 0;
                for (; posted > 0; posted--) {
                    enum ibv_wc_status status = next(&p);
                    if (!failed && status != IBV_WC_SUCCESS) {
                        failed = 1;
                        int local = status == IBV_WC_LOC_PROT_ERR;
                        int remote = status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_REM_OP_ERR;
                        const char *what = ibv_wc_status_str(status);
                        if (!(side ? remote : local)) fprintf(stderr, "opcode %d, side %d: %s\n", opcodes[o], side, what);
                        CHECK(side ? remote : local);
                    } else if (failed) {
                        CHECK(status == IBV_WC_WR_FLUSH_ERR);
                    }
                }
                if (!failed) fprintf(stderr, "opcode %d, %u bytes, side %d\n", opcodes[o], lengths[l], side);
                CHECK(failed);
                wait_for_error(p.qp[0]);
            }
    others_work();
}

// Memory whose rights are taken away, and whose file becomes shorter.
static void rights(void) {
    struct pair p = make_pair();
    struct ibv_mr *a = registered(0), *b = registered(1);
    CHECK(mprotect(b->addr, BYTES, PROT_READ) == 0);
    CHECK(one(&p, IBV_WR_RDMA_READ, a, b, BYTES) == IBV_WC_SUCCESS);
    CHECK(one(&p, IBV_WR_RDMA_WRITE, a, b, BYTES) != IBV_WC_SUCCESS);
    p = make_pair();
    int fd = memfd_create("file", 0);
    CHECK(ftruncate(fd, BYTES) == 0);
    void *file = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    struct ibv_mr *c = ibv_reg_mr(pd[0], file, BYTES, IBV_ACCESS_LOCAL_WRITE);
    CHECK(mprotect(b->addr, BYTES, PROT_READ | PROT_WRITE) == 0);
    CHECK(c && one(&p, IBV_WR_RDMA_WRITE, c, b, BYTES) == IBV_WC_SUCCESS);
    CHECK(ftruncate(fd, PAGE) == 0);
    CHECK(one(&p, IBV_WR_RDMA_WRITE, c, b, BYTES) == IBV_WC_LOC_PROT_ERR);
    others_work();
}

static void take(void *at, size_t len) {
    uintptr_t first = (uintptr_t)at & ~(PAGE - 1), end = ((uintptr_t)at + len + PAGE - 1) & ~(PAGE - 1);
    CHECK(munmap((void *)first, end - first) == 0);
}

struct area { volatile uint32_t *at; size_t bytes; };

static int is_mlx5(void) {
    return !strncmp(ibv_get_device_name(context[0]->device), "mlx5", 4);
}

// Memory that libbnxt_re or libionic took for the objects of a pair.
static struct { void *at; size_t bytes; int of; } noted[64];
static int notes, noting;

void *mmap(void *at, size_t bytes, int rights, int flags, int fd, off_t from) {
    void *got = (void *)syscall(SYS_mmap, at, bytes, rights, flags, fd, from);
    Dl_info caller;
    if (!noting || making < 0 || got == MAP_FAILED || !(flags & MAP_ANONYMOUS)) return got;
    if (!dladdr(__builtin_return_address(0), &caller)) return got;
    if (!strstr(caller.dli_fname, "libbnxt_re") && !strstr(caller.dli_fname, "libionic")) return got;
    CHECK(notes < 64);
    noted[notes].at = got, noted[notes].bytes = bytes, noted[notes++].of = making;
    return got;
}

void *mmap64(void *, size_t, int, int, int, off_t) __attribute__((alias("mmap")));

static struct pair noted_pair(void) {
    notes = 0, noting = 1;
    struct pair p = make_pair();
    noting = 0;
    return p;
}

// The queues of a CQ or a QP of a side. Later versions of libbnxt_re have the object itself in the last page.
static int queues_of(int of, void *object, struct area out[64]) {
    int count = 0;
    for (int i = 0; i < notes; i++) {
        if (noted[i].of != of) continue;
        char *at = noted[i].at, *end = at + noted[i].bytes;
        if (at <= (char *)object && (char *)object < end) end = (char *)((uintptr_t)object & ~(PAGE - 1));
        if (at < end) out[count++] = (struct area){(volatile uint32_t *)at, end - at};
    }
    CHECK(count > 0);
    return count;
}

static void take_all(int of, void *object) {
    struct area areas[64];
    for (int i = queues_of(of, object, areas) - 1; i >= 0; i--) take((void *)areas[i].at, areas[i].bytes);
}

// Announces eight units, of a queue whose first lap it is, as every version of the libraries does.
static void announce(struct ibv_qp *qp, int receives) {
    volatile uint64_t *page[2];
    int found = pages(page);
    for (int i = 0; i < found; i++) {
        if (is_ionic()) {
            page[i][1 + receives] = (uint64_t)qp->qp_num << 24 | 8;
        } else {
            uint64_t bell = (uint64_t)(qp->qp_num & 0xfffff) << 32 | (uint64_t)receives << 60 | 8;
            page[i][0] = bell;
            page[i][0] = bell | 1ull << 58;
        }
    }
}

// The queues themselves, of libraries that do not say where they are.
static void others_queues(void) {
    struct ibv_mr *a = registered(0), *b = registered(1);
    // WQEs are only announced, and with them packet numbers, if there are any.
    struct pair p = noted_pair();
    CHECK(one(&p, IBV_WR_RDMA_WRITE, a, b, 8) == IBV_WC_SUCCESS);
    take_all(1, p.qp[0]);
    announce(p.qp[0], 0);
    wait_for_error(p.qp[0]);
    settle();
    // A CQ.
    p = noted_pair();
    take_all(0, p.cq);
    for (int i = 0; i < 8; i++) CHECK(post(&p, IBV_WR_RDMA_WRITE, a, b, 8) == 0);
    settle();
    // Receives.
    p = noted_pair();
    take_all(3, p.qp[1]);
    announce(p.qp[1], 1);
    CHECK(one(&p, IBV_WR_SEND, a, b, 8) != IBV_WC_SUCCESS);
    wait_for_error(p.qp[1]);
    settle();
}

// The queues themselves.
static void queues(void) {
    if (!is_mlx5()) return others_queues();
    struct ibv_mr *a = registered(0), *b = registered(1);
    struct pair p = make_pair();
    struct mlx5dv_qp ring = rings(p.qp[0]);
    // The second WQE cannot be read: it is only announced.
    CHECK(one(&p, IBV_WR_RDMA_WRITE, a, b, 8) == IBV_WC_SUCCESS);
    take(ring.sq.buf, ring.sq.wqe_cnt * ring.sq.stride);
    *(volatile uint32_t *)(ring.dbrec + 1) = htobe32(2);
    *(volatile uint64_t *)ring.bf.reg = htobe64((uint64_t)p.qp[0]->qp_num << 8 | 1ull << 40);
    CHECK(next(&p) != IBV_WC_SUCCESS);
    wait_for_error(p.qp[0]);
    settle();
    // The records, which several QPs of libmlx5 share a page for.
    p = make_pair();
    ring = rings(p.qp[0]);
    CHECK(one(&p, IBV_WR_RDMA_WRITE, a, b, 8) == IBV_WC_SUCCESS);
    void *record = (void *)((uintptr_t)ring.dbrec & ~(PAGE - 1));
    CHECK(mprotect(record, PAGE, PROT_NONE) == 0);
    for (double end = now() + 0.05; now() < end;) {
    }
    CHECK(mprotect(record, PAGE, PROT_READ | PROT_WRITE) == 0);
    settle();
    // A CQ.
    p = make_pair();
    struct mlx5dv_cq cq = {0};
    struct mlx5dv_obj obj = {.cq = {.in = p.cq, .out = &cq}};
    CHECK(mlx5dv_init_obj(&obj, MLX5DV_OBJ_CQ) == 0);
    take(cq.buf, (size_t)cq.cqe_cnt * cq.cqe_size);
    for (int i = 0; i < 8; i++) CHECK(post(&p, IBV_WR_RDMA_WRITE, a, b, 8) == 0);
    settle();
    // Receives.
    p = make_pair();
    ring = rings(p.qp[1]);
    take(ring.rq.buf, ring.rq.wqe_cnt * ring.rq.stride);
    *(volatile uint32_t *)ring.dbrec = htobe32(1);
    CHECK(one(&p, IBV_WR_SEND, a, b, 8) != IBV_WC_SUCCESS);
    settle();
}

// Everything that the device reads of the first QP of a pair.
static int read_by_device(struct pair *p, struct area out[64]) {
    int count = 0;
    if (is_mlx5()) {
        struct mlx5dv_qp ring = rings(p->qp[0]);
        out[count++] = (struct area){ring.sq.buf, ring.sq.wqe_cnt * ring.sq.stride};
        out[count++] = (struct area){ring.rq.buf, ring.rq.wqe_cnt * ring.rq.stride};
        out[count++] = (struct area){ring.bf.reg, 256};
        out[count++] = (struct area){(volatile uint32_t *)ring.dbrec, 8};
        return count;
    }
    // Their registers: `bells`.
    return queues_of(1, p->qp[0], out);
}

// Random bytes there.
static void noise(unsigned seed) {
    srand(seed);
    for (int round = 0; round < (is_mlx5() ? 40 : 10); round++) {
        struct pair p = noted_pair();
        struct ibv_mr *a = registered(0), *b = registered(1);
        struct area areas[64];
        int count = read_by_device(&p, areas);
        for (int i = 0; i < DEPTH / 2; i++) CHECK(post(&p, IBV_WR_RDMA_WRITE, a, b, 64) == 0);
        for (int i = 0; i < 500; i++) {
            struct area area = areas[rand() % count];
            area.at[rand() % (area.bytes / 4)] = (uint32_t)rand() << (rand() % 24);
        }
        // CQEs of what nobody posted are of no use; the QPs are destroyed with their garbage.
        CHECK(ibv_destroy_qp(p.qp[0]) == 0 && ibv_destroy_qp(p.qp[1]) == 0 && ibv_destroy_cq(p.cq) == 0);
    }
    others_work();
}

static sigjmp_buf back;
static volatile int caught;

static void on_signal(int signal) {
    caught = signal;
    siglongjmp(back, 1);
}

static void on_signal_info(int signal, siginfo_t *info, void *c) {
    (void)c;
    CHECK((uintptr_t)info->si_addr < PAGE);
    on_signal(signal);
}

static int own_fault(void) {
    caught = 0;
    if (sigsetjmp(back, 1) == 0) *(volatile int *)(uintptr_t)8 = 1;
    return caught;
}

// The program's own faults are its own.
static void handlers(void) {
    struct sigaction old, action = {.sa_handler = on_signal};
    // This one was set before the device was opened.
    CHECK(own_fault() == SIGSEGV);
    CHECK(sigaction(SIGSEGV, NULL, &old) == 0 && old.sa_handler == on_signal && !(old.sa_flags & SA_SIGINFO));
    action.sa_sigaction = on_signal_info;
    action.sa_flags = SA_SIGINFO | SA_RESETHAND;
    CHECK(sigaction(SIGSEGV, &action, &old) == 0 && old.sa_handler == on_signal);
    CHECK(own_fault() == SIGSEGV);
    CHECK(sigaction(SIGSEGV, NULL, &old) == 0 && old.sa_handler == SIG_DFL);
    CHECK(signal(SIGSEGV, on_signal) == SIG_DFL && signal(SIGSEGV, SIG_DFL) == on_signal);
    payload();
    for (int sent = 0; sent < 2; sent++) {
        pid_t child = fork();
        if (child == 0) {
            if (sent) raise(SIGBUS);
            *(volatile int *)(uintptr_t)8 = 1;
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
        CHECK(WTERMSIG(status) == (sent ? SIGBUS : SIGSEGV));
    }
    others_work();
}

int main(int argc, char **argv) {
    CHECK(argc >= 2);
    if (!strcmp(argv[1], "handlers")) {
        struct sigaction action = {.sa_handler = on_signal};
        CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
    }
    open_devices();
    if (!strcmp(argv[1], "payload")) payload();
    else if (!strcmp(argv[1], "rights")) rights();
    else if (!strcmp(argv[1], "queues")) queues();
    else if (!strcmp(argv[1], "noise")) noise(argc > 2 ? atoi(argv[2]) : 1);
    else if (!strcmp(argv[1], "handlers")) handlers();
    else fail(__LINE__, "a known case");
    // Nothing is freed: the C library's bookkeeping lies beside the memory that is gone.
    puts("done");
    fflush(stdout);
    _exit(0);
}
