// A program that has children and closes descriptors, its own and others', while its device has traffic.
//
// children CASE SEED: exits with 0 if every message arrives as it was sent, and no child waits for ever.
#define _GNU_SOURCE
#include "verbs_pair.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define MOST_FDS 1024
#define CHILDREN 40
// Longer than anything takes on a busy machine: only a child that would never end is still there.
#define PATIENCE 90

static uint64_t seed;

// A generator of our own, for threads and children alike.
static uint64_t chance(uint64_t *state) {
    *state += 0x9e3779b97f4a7c15u;
    uint64_t z = *state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static void scramble(void *at, size_t len, uint64_t *state) {
    for (size_t i = 0; i + 8 <= len; i += 8) {
        uint64_t word = chance(state);
        memcpy((char *)at + i, &word, 8);
    }
}

struct traffic {
    struct pair pair;
    struct ibv_mr *from, *to;
    uint64_t state;
    unsigned long messages;
    atomic_int stop;
    pthread_t thread;
};

// One message of random bytes there and back: a WRITE, compared, then a READ, compared.
static void exchange(struct traffic *t) {
    size_t len = 8 + chance(&t->state) % (BYTES / 8) * 8;
    len = len > BYTES ? BYTES : len;
    scramble(t->from->addr, len, &t->state);
    CHECK(one(&t->pair, IBV_WR_RDMA_WRITE, t->from, t->to, len) == IBV_WC_SUCCESS);
    CHECK(memcmp(t->from->addr, t->to->addr, len) == 0);
    scramble(t->to->addr, len, &t->state);
    CHECK(one(&t->pair, IBV_WR_RDMA_READ, t->from, t->to, len) == IBV_WC_SUCCESS);
    CHECK(memcmp(t->from->addr, t->to->addr, len) == 0);
    t->messages += 2;
}

static void prepare(struct traffic *t) {
    memset(t, 0, sizeof *t);
    t->pair = make_pair();
    t->from = registered(0);
    t->to = registered(1);
    t->state = seed;
    exchange(t);
}

static void *run(void *argument) {
    struct traffic *t = argument;
    while (!atomic_load(&t->stop)) exchange(t);
    return NULL;
}

static void start(struct traffic *t) {
    prepare(t);
    CHECK(pthread_create(&t->thread, NULL, run, t) == 0);
}

static void end(struct traffic *t) {
    atomic_store(&t->stop, 1);
    CHECK(pthread_join(t->thread, NULL) == 0);
    exchange(t);
    others_work();
}

static void ends_well(pid_t child) {
    CHECK(child > 0);
    for (double until = now() + PATIENCE;; usleep(1000)) {
        int status;
        pid_t ended = waitpid(child, &status, WNOHANG);
        CHECK(ended >= 0);
        if (ended) {
            if (!WIFEXITED(status) || WEXITSTATUS(status)) fprintf(stderr, "a child's status is %#x\n", status);
            CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
            return;
        }
        if (now() > until) kill(child, SIGKILL);
        CHECK(now() <= until);
    }
}

static void close_all(int first) {
    for (int fd = first; fd < MOST_FDS; fd++) close(fd);
}

static void execute(void) {
    execl("/bin/true", "true", NULL);
    _exit(127);
}

// Daemons and launchers: a child that closes all it finds, one by one, and executes something else.
static void close_and_execute(void) {
    struct traffic t;
    start(&t);
    for (int i = 0; i < CHILDREN; i++) {
        pid_t child = fork();
        if (child == 0) {
            close_all(3);
            execute();
        }
        ends_well(child);
    }
    end(&t);
}

// Children that live on beside their parent: its device is not theirs, and one of their own works.
static void live_on(void) {
    struct traffic t;
    start(&t);
    pid_t children[4];
    for (int i = 0; i < 4; i++) {
        if ((children[i] = fork()) == 0) {
            struct stat was;
            int fd = context[0]->cmd_fd;
            CHECK(fstat(fd, &was) == 0 && S_ISCHR(was.st_mode));
            CHECK(ibv_alloc_pd(context[0]) == NULL && errno == EIO);
            // As a program's exit handlers may do.
            if (i % 2) ibv_destroy_qp(t.pair.qp[0]), ibv_close_device(context[0]);
            if (i / 2) close_all(3);
            open_devices();
            seed += i + 1;
            struct traffic own;
            prepare(&own);
            for (int n = 0; n < 100; n++) exchange(&own);
            others_work();
            exit(0);
        }
    }
    for (int i = 0; i < 4; i++) ends_well(children[i]);
    end(&t);
}

// A child of vfork() has its parent's memory and descriptors of its own.
static void share_memory(void) {
    struct traffic t;
    start(&t);
    for (int i = 0; i < CHILDREN; i++) {
        pid_t child = vfork();
        if (child == 0) {
            if (i % 2)
                for (int fd = 3; fd < MOST_FDS; fd++) close(fd);
            else if (syscall(SYS_close_range, 3, ~0u, 0))
                _exit(1);
            execl("/bin/true", "true", NULL);
            _exit(127);
        }
        ends_well(child);
        struct ibv_mr *mr = registered(0);
        CHECK(ibv_dereg_mr(mr) == 0);
    }
    end(&t);
}

static atomic_int registering = 1;

static void *registers(void *argument) {
    size_t len = (size_t)argument;
    void *at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(at != MAP_FAILED);
    while (atomic_load(&registering)) {
        struct ibv_mr *mr = ibv_reg_mr(pd[0], at, len, IBV_ACCESS_LOCAL_WRITE);
        CHECK(mr && ibv_dereg_mr(mr) == 0);
        CHECK(madvise(at, len, MADV_DONTNEED) == 0);
    }
    return NULL;
}

// Children close while other threads of their parent are in calls, long ones and short ones.
static void register_meanwhile(void) {
    struct traffic t;
    start(&t);
    pthread_t threads[2];
    size_t lengths[2] = {64 << 20, PAGE};
    for (int i = 0; i < 2; i++) CHECK(pthread_create(&threads[i], NULL, registers, (void *)lengths[i]) == 0);
    for (int i = 0; i < 2 * CHILDREN; i++) {
        pid_t child = fork();
        if (child == 0) {
            close_all(i % 2 ? 3 : MOST_FDS - 1);
            if (i % 4 == 0) {
                open_devices();
                others_work();
            }
            _exit(0);
        }
        ends_well(child);
    }
    atomic_store(&registering, 0);
    for (int i = 0; i < 2; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    end(&t);
}

// A thread that waits in a registration, for as long as the test wants.
static _Thread_local int is_held;
static sem_t is_inside, let_go;

// The device has the kernel make the pages of a registration present: the program's own functions come
// before those of libraries, so it comes here first.
int madvise(void *at, size_t len, int advice) {
    if (is_held && advice == 23 /* MADV_POPULATE_WRITE */) {
        is_held = 0;
        CHECK(sem_post(&is_inside) == 0 && sem_wait(&let_go) == 0);
    }
    return syscall(SYS_madvise, at, len, advice);
}

static void *registers_slowly(void *pd) {
    is_held = 1;
    struct ibv_mr *mr = ibv_reg_mr(pd, fresh(), BYTES, IBV_ACCESS_LOCAL_WRITE);
    CHECK(mr && !is_held && ibv_dereg_mr(mr) == 0);
    return NULL;
}

// While a thread waits in a call of one open device, others close and look at descriptors, of that device
// too, and call other open devices. A thread that waits for that call never ends; the caller of this program kills it.
static void call_meanwhile(void) {
    struct traffic t;
    start(&t);
    struct ibv_context *busy = ibv_open_device(context[0]->device);
    CHECK(busy);
    struct ibv_pd *its = ibv_alloc_pd(busy);
    CHECK(its && sem_init(&is_inside, 0, 0) == 0 && sem_init(&let_go, 0, 0) == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, registers_slowly, its) == 0 && sem_wait(&is_inside) == 0);
    struct stat was;
    int copy = dup(busy->cmd_fd), file = open("/dev/null", O_RDWR), next = dup(file);
    CHECK(fstat(copy, &was) == 0 && S_ISCHR(was.st_mode) && fstat(file, &was) == 0);
    CHECK(close(copy) == 0 && close(file) == 0 && close_range(next, next, 0) == 0);
    others_work();
    struct ibv_context *another = ibv_open_device(context[1]->device);
    CHECK(another && ibv_close_device(another) == 0);
    end(&t);
    CHECK(sem_post(&let_go) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(ibv_dealloc_pd(its) == 0 && ibv_close_device(busy) == 0);
}

static struct ibv_cq *event_of(struct ibv_comp_channel *channel, struct traffic *t) {
    struct ibv_cq *cq;
    void *name;
    CHECK(ibv_req_notify_cq(t->pair.cq, 0) == 0);
    CHECK(post(&t->pair, IBV_WR_RDMA_WRITE, t->from, t->to, 64) == 0);
    CHECK(ibv_get_cq_event(channel, &cq, &name) == 0);
    ibv_ack_cq_events(cq, 1);
    CHECK(next(&t->pair) == IBV_WC_SUCCESS);
    return cq;
}

static int descriptors(void) {
    int open = 0;
    for (int fd = 0; fd < MOST_FDS; fd++) open += fcntl(fd, F_GETFD) >= 0;
    return open;
}

// A channel lives as long as one of its descriptors, and is named by any of them.
static void channels(void) {
    context[1] = context[0], pd[1] = pd[0];
    struct traffic t;
    prepare(&t);
    struct ibv_comp_channel *channel = ibv_create_comp_channel(context[0]);
    CHECK(channel);
    int copy = dup(channel->fd);
    close(channel->fd);
    // Another file has the number now.
    int null = open("/dev/null", O_RDWR);
    CHECK(null == channel->fd || fcntl(null, F_DUPFD, channel->fd) == channel->fd);
    CHECK(ibv_create_cq(context[0], DEPTH, NULL, channel, 0) == NULL && errno == EBADF);
    channel->fd = copy;
    struct ibv_cq *cq = ibv_create_cq(context[0], DEPTH, NULL, channel, 0);
    CHECK(cq);
    struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1};
    init.cap = (struct ibv_qp_cap){DEPTH, DEPTH, 1, 1, 0};
    struct ibv_qp *qp = ibv_create_qp(pd[0], &init);
    CHECK(qp);
    init.send_cq = init.recv_cq = t.pair.cq;
    struct ibv_qp *peer = ibv_create_qp(pd[0], &init);
    CHECK(peer);
    t.pair = (struct pair){cq, {qp, peer}};
    connect_to(qp, peer->qp_num, context[0]);
    connect_to(peer, qp->qp_num, context[0]);
    for (int i = 0; i < 10; i++) CHECK(event_of(channel, &t) == cq);
    // An event that is not read is taken back.
    CHECK(ibv_req_notify_cq(cq, 0) == 0);
    CHECK(post(&t.pair, IBV_WR_RDMA_WRITE, t.from, t.to, 64) == 0 && next(&t.pair) == IBV_WC_SUCCESS);
    CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0);
    CHECK(ibv_destroy_comp_channel(channel) == 0);

    // Each costs no more than two descriptors, which come back, and too few of them are called so.
    int open_before = descriptors();
    struct ibv_comp_channel *many[MOST_FDS];
    int made = 0;
    struct rlimit limit = {open_before + 64, MOST_FDS};
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    while (made < MOST_FDS && (many[made] = ibv_create_comp_channel(context[0]))) made++;
    CHECK(errno == EMFILE);
    if (made < 31) fprintf(stderr, "%d channels of 64 descriptors\n", made);
    CHECK(made >= 31);
    int spare = dup(0);
    CHECK(open("/dev/infiniband/uverbs0", O_RDWR) == -1 && errno == EMFILE);
    if (spare >= 0) close(spare);
    for (int i = 0; i < made; i++) CHECK(ibv_destroy_comp_channel(many[i]) == 0);
    // Those of the last are given back when it is noticed.
    struct ibv_comp_channel *last = ibv_create_comp_channel(context[0]);
    CHECK(last && ibv_destroy_comp_channel(last) == 0);
    CHECK(descriptors() <= open_before + 1);
    others_work();
}

// A device's file takes no bytes: they would be doorbells.
static void write_file(void) {
    struct traffic t;
    start(&t);
    char noise[3 * PAGE];
    uint64_t state = seed + 1;
    int fd = context[0]->cmd_fd;
    for (int i = 0; i < 200; i++) {
        scramble(noise, sizeof noise, &state);
        // Also with the flags that the program gives it.
        CHECK(fcntl(fd, F_SETFL, i % 2 ? 0 : O_NONBLOCK) == 0);
        CHECK(write(fd, noise, 1 + i) == -1);
        CHECK(pwrite(fd, noise, sizeof noise, i % 32 * PAGE) == -1);
        CHECK(lseek(fd, i % 32 * PAGE, SEEK_SET) == -1 || write(fd, noise, sizeof noise) == -1);
        CHECK(ftruncate(fd, PAGE) == -1);
    }
    end(&t);
}

// A program that closes in its own process what it does not know: the device's own descriptors are not
// there for it, and what has their numbers later is the program's.
static void close_unknown(void) {
    struct traffic t;
    start(&t);
    for (int way = 0; way < 2; way++) {
        int known[] = {0, context[0]->cmd_fd, context[0]->async_fd, context[1]->cmd_fd, context[1]->async_fd, MOST_FDS};
        for (int from = 3; from < MOST_FDS; from++) {
            int next = MOST_FDS, is_known = 0;
            for (int i = 0; i < 6; i++) {
                is_known |= known[i] == from;
                if (known[i] > from && known[i] < next) next = known[i];
            }
            if (is_known) continue;
            if (way) {
                CHECK(close_range(from, next - 1, 0) == 0);
                from = next - 1;
            } else {
                close(from);
            }
        }
        int pairs[64][2];
        for (int i = 0; i < 64; i++) CHECK(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, pairs[i]) == 0);
        for (int i = 0; i < 20; i++) others_work();
        char byte;
        for (int i = 0; i < 64; i++)
            for (int end = 0; end < 2; end++) CHECK(recv(pairs[i][end], &byte, 1, 0) == -1 && errno == EAGAIN);
        for (int i = 0; i < 64; i++) CHECK(close(pairs[i][0]) == 0 && close(pairs[i][1]) == 0);
    }
    end(&t);
    CHECK(ibv_close_device(context[0]) == 0 || errno == EBUSY);
    open_devices();
    others_work();
}

static void *makes_cqs(void *channel) {
    for (;;) {
        struct ibv_cq *cq = ibv_create_cq(context[0], DEPTH, NULL, channel, 0);
        CHECK(cq && ibv_destroy_cq(cq) == 0);
        pthread_testcancel();
    }
    return NULL;
}

// Signals that all threads of the program have blocked wait for it, and a thread is cancelled where the
// program says, not in a call of the device.
static void signals(void) {
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGUSR1);
    CHECK(pthread_sigmask(SIG_BLOCK, &wanted, NULL) == 0);
    struct traffic t;
    start(&t);
    struct ibv_comp_channel *channel = ibv_create_comp_channel(context[0]);
    CHECK(channel);
    for (int i = 0; i < CHILDREN; i++) {
        CHECK(kill(getpid(), SIGUSR1) == 0);
        CHECK(sigtimedwait(&wanted, NULL, &(struct timespec){PATIENCE, 0}) == SIGUSR1);
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, makes_cqs, channel) == 0);
        usleep(chance(&seed) % 3000);
        void *result;
        CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
    }
    CHECK(ibv_destroy_comp_channel(channel) == 0);
    end(&t);
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    seed = strtoull(argv[2], NULL, 10);
    fprintf(stderr, "seed %lu\n", seed);
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {
        {"execute", close_and_execute}, {"live", live_on},         {"vfork", share_memory},   {"register", register_meanwhile},
        {"call", call_meanwhile},
        {"channels", channels},         {"write", write_file},     {"unknown", close_unknown},
        {"signals", signals},
    };
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++)
        if (!strcmp(argv[1], cases[i].name)) {
            open_devices();
            cases[i].run();
            puts("done");
            return 0;
        }
    return 2;
}
