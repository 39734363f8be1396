// A program that takes away memory from the device that it has given to it.
//
// unmapped CASE: exits with 0 if the device ends the requests concerned with an error, goes on
// with others, and leaves the program's signals alone.
#define _GNU_SOURCE
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096ul
#define BYTES (16 * PAGE)
#define DEPTH 64

#define CHECK(condition) ((condition) ? (void)0 : fail(__LINE__, #condition))

static void fail(int line, const char *what) {
    fprintf(stderr, "line %d: not so: %s\n", line, what);
    _exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

// The first QP of a pair is on the first device, the other on the second, if there is one.
static struct ibv_context *context[2];
static struct ibv_pd *pd[2];

// Two QPs that are connected to each other, and the CQ of the first.
struct pair {
    struct ibv_cq *cq;
    struct ibv_qp *qp[2];
};

static void connect_to(struct ibv_qp *qp, uint32_t peer, struct ibv_context *there) {
    union ibv_gid gid;
    CHECK(ibv_query_gid(there, 1, 0, &gid) == 0);
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    a.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    CHECK(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
    memset(&a, 0, sizeof a);
    a.qp_state = IBV_QPS_RTR;
    a.path_mtu = IBV_MTU_1024;
    a.dest_qp_num = peer;
    a.max_dest_rd_atomic = 1;
    a.min_rnr_timer = 1;
    a.ah_attr.is_global = 1;
    a.ah_attr.port_num = 1;
    a.ah_attr.grh.dgid = gid;
    a.ah_attr.grh.hop_limit = 1;
    CHECK(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
    memset(&a, 0, sizeof a);
    a.qp_state = IBV_QPS_RTS;
    a.timeout = 17;
    a.retry_cnt = 7;
    a.rnr_retry = 1;
    a.max_rd_atomic = 1;
    CHECK(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                    IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

static struct pair make_pair(void) {
    struct pair p;
    for (int i = 1; i >= 0; i--) {
        CHECK((p.cq = ibv_create_cq(context[i], 4 * DEPTH, NULL, NULL, 0)));
        struct ibv_qp_init_attr init = {.send_cq = p.cq, .recv_cq = p.cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1};
        init.cap = (struct ibv_qp_cap){DEPTH, DEPTH, 1, 1, 0};
        CHECK((p.qp[i] = ibv_create_qp(pd[i], &init)));
    }
    for (int i = 0; i < 2; i++) connect_to(p.qp[i], p.qp[!i]->qp_num, context[!i]);
    return p;
}

static int post(struct pair *p, enum ibv_wr_opcode opcode, struct ibv_mr *from, struct ibv_mr *to, uint32_t len) {
    struct ibv_sge sge = {(uintptr_t)from->addr, len, from->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = opcode}, *bad;
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        wr.wr.atomic.remote_addr = (uintptr_t)to->addr;
        wr.wr.atomic.compare_add = 1;
        wr.wr.atomic.rkey = to->rkey;
    } else {
        wr.wr.rdma.remote_addr = (uintptr_t)to->addr;
        wr.wr.rdma.rkey = to->rkey;
    }
    return ibv_post_send(p->qp[0], &wr, &bad);
}

static enum ibv_wc_status next(struct pair *p) {
    struct ibv_wc wc;
    for (double end = now() + 60; now() < end;) {
        int n = ibv_poll_cq(p->cq, 1, &wc);
        CHECK(n >= 0);
        if (n) return wc.status;
    }
    fail(__LINE__, "a completion within a minute");
    return 0;
}

static enum ibv_wc_status one(struct pair *p, enum ibv_wr_opcode opcode, struct ibv_mr *from, struct ibv_mr *to, uint32_t len) {
    CHECK(post(p, opcode, from, to, len) == 0);
    return next(p);
}

static void *fresh(void) {
    void *at = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    return at;
}

static struct ibv_mr *registered(int side) {
    int rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    struct ibv_mr *mr = ibv_reg_mr(pd[side], fresh(), BYTES, rights);
    CHECK(mr);
    return mr;
}

// The device still works for others.
static void others_work(void) {
    struct pair p = make_pair();
    struct ibv_mr *a = registered(0), *b = registered(1);
    memset(a->addr, 7, BYTES);
    CHECK(one(&p, IBV_WR_RDMA_WRITE, a, b, BYTES) == IBV_WC_SUCCESS);
    CHECK(memcmp(a->addr, b->addr, BYTES) == 0);
}

static enum ibv_qp_state state_of(struct ibv_qp *qp) {
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    CHECK(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init) == 0);
    return attr.qp_state;
}

static void wait_for_error(struct ibv_qp *qp) {
    for (double end = now() + 60; state_of(qp) != IBV_QPS_ERR;) CHECK(now() < end);
}

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

static struct mlx5dv_qp rings(struct ibv_qp *qp) {
    struct mlx5dv_qp out = {0};
    struct mlx5dv_obj obj = {.qp = {.in = qp, .out = &out}};
    CHECK(mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP) == 0);
    return out;
}

static void take(void *at, size_t len) {
    uintptr_t first = (uintptr_t)at & ~(PAGE - 1), end = ((uintptr_t)at + len + PAGE - 1) & ~(PAGE - 1);
    CHECK(munmap((void *)first, end - first) == 0);
}

// Lets the device look at its queues a few times: others' requests are carried out meanwhile.
static void settle(void) {
    for (int i = 0; i < 20; i++) others_work();
}

// The queues themselves.
static void queues(void) {
    struct ibv_mr *a = registered(0), *b = registered(1);
    struct pair p = make_pair();
    struct mlx5dv_qp ring = rings(p.qp[0]);
    // What is posted cannot be read: it is only announced.
    CHECK(one(&p, IBV_WR_RDMA_WRITE, a, b, 8) == IBV_WC_SUCCESS);
    take(ring.sq.buf, ring.sq.wqe_cnt * ring.sq.stride);
    *(volatile uint32_t *)(ring.dbrec + 1) = htobe32(2);
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

// Random bytes in everything that the device reads.
static void noise(unsigned seed) {
    srand(seed);
    for (int round = 0; round < 40; round++) {
        struct pair p = make_pair();
        struct ibv_mr *a = registered(0), *b = registered(1);
        struct mlx5dv_qp ring = rings(p.qp[0]);
        for (int i = 0; i < DEPTH / 2; i++) CHECK(post(&p, IBV_WR_RDMA_WRITE, a, b, 64) == 0);
        for (int i = 0; i < 500; i++) {
            uint32_t *words[] = {ring.sq.buf, ring.rq.buf, ring.bf.reg, (uint32_t *)ring.dbrec};
            size_t sizes[] = {ring.sq.wqe_cnt * ring.sq.stride, ring.rq.wqe_cnt * ring.rq.stride, 256, 8};
            int which = rand() % 4;
            ((volatile uint32_t *)words[which])[rand() % (sizes[which] / 4)] = (uint32_t)rand() << (rand() % 24);
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
    struct ibv_device **list = ibv_get_device_list(NULL);
    CHECK(list && list[0]);
    int devices = list[1] ? 2 : 1;
    for (int i = 0; i < 2; i++) {
        if (i < devices) {
            CHECK((context[i] = ibv_open_device(list[i])) && (pd[i] = ibv_alloc_pd(context[i])));
        } else {
            context[i] = context[0], pd[i] = pd[0];
        }
    }
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
