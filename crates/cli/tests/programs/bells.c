// A program of doorbell pages without records, bnxt_re's and ionic's, and of what their libraries do by themselves.
//
// bells CASE SEED: exits with 0 if no ring is lost, wrong ones harm nobody, and the library is told what it has
// to know.
#define _GNU_SOURCE
#include "verbs_pair.h"
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#define THREADS 6
#define RINGS 400

static uint64_t state;

static uint64_t next_random(void) {
    uint64_t z = state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

// Doorbells of any value, to any place of the pages, while others work.
static void noise(void) {
    volatile uint64_t *page[2];
    int found = pages(page), ionic = is_ionic();
    struct pair p = make_pair();
    for (int i = 0; i < 4000; i++) {
        uint64_t value = next_random();
        // Most are well-formed, and a third names a queue that there is.
        if (i % 8) value &= ionic ? 0xffffff03ffff : 0xf00fffff00ffffff;
        uint64_t number = p.qp[i % 2]->qp_num & (ionic ? 0xffffff : 0xfffff), at = ionic ? 24 : 32;
        if (i % 3 == 0) value = (value & ~((ionic ? 0xffffffull : 0xfffffull) << at)) | number << at;
        page[i % found][i % 5 && !ionic ? 0 : next_random() % 512] = value;
        if (i % 500 == 0) others_work();
    }
    others_work();
}

// Every thread has a pair and rings one page.
static void *ring(void *argument) {
    (void)argument;
    static pthread_mutex_t one_by_one = PTHREAD_MUTEX_INITIALIZER;
    CHECK(pthread_mutex_lock(&one_by_one) == 0);
    struct pair p = make_pair();
    struct ibv_mr *a = registered(0), *b = registered(1);
    uint64_t word = next_random();
    CHECK(pthread_mutex_unlock(&one_by_one) == 0);
    uint64_t *from = a->addr, *to = b->addr;
    for (int i = 0; i < RINGS; i++) {
        *from = word += 0x9e3779b97f4a7c15;
        CHECK(one(&p, IBV_WR_RDMA_WRITE, a, b, 8) == IBV_WC_SUCCESS && *to == word);
    }
    return NULL;
}

static void threads(void) {
    pthread_t thread[THREADS];
    for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&thread[i], NULL, ring, NULL) == 0);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(thread[i], NULL) == 0);
}

static void receive(struct ibv_qp *qp, struct ibv_mr *mr, uint64_t id) {
    struct ibv_sge sge = {(uintptr_t)mr->addr, 64, mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;
    CHECK(ibv_post_recv(qp, &wr, &bad) == 0);
}

static struct ibv_wc completion(struct ibv_cq *cq) {
    struct ibv_wc wc;
    for (double end = now() + 60; now() < end;) {
        int n = ibv_poll_cq(cq, 1, &wc);
        CHECK(n >= 0);
        if (n) return wc;
    }
    fail(__LINE__, "a completion within a minute");
    return wc;
}

// A QP that fails, or is put into ERR, ends all its work: receives in order, sends after the one that failed.
static void errors(void) {
    struct ibv_mr *a = registered(0), *b = registered(1);
    struct pair p = make_pair();
    for (int i = 0; i < 10; i++) receive(p.qp[0], a, i);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    CHECK(ibv_modify_qp(p.qp[0], &attr, IBV_QP_STATE) == 0);
    for (int i = 0; i < 10; i++) {
        struct ibv_wc wc = completion(p.cq);
        CHECK(wc.status == IBV_WC_WR_FLUSH_ERR && wc.wr_id == (uint64_t)i && wc.qp_num == p.qp[0]->qp_num);
    }
    p = make_pair();
    receive(p.qp[0], a, 77);
    CHECK(one(&p, IBV_WR_RDMA_WRITE, a, b, 8) == IBV_WC_SUCCESS);
    b->rkey ^= 1;
    for (int i = 0; i < 5; i++) CHECK(post(&p, IBV_WR_RDMA_WRITE, a, b, 8) == 0);
    b->rkey ^= 1;
    CHECK(next(&p) == IBV_WC_REM_ACCESS_ERR);
    int sends = 0;
    for (int i = 0; i < 5; i++) {
        struct ibv_wc wc = completion(p.cq);
        CHECK(wc.status == IBV_WC_WR_FLUSH_ERR);
        sends += wc.wr_id != 77;
    }
    CHECK(sends == 4);
    // No receive: the sender gives up.
    p = make_pair();
    CHECK(one(&p, IBV_WR_SEND, a, b, 8) == IBV_WC_RNR_RETRY_EXC_ERR);
    others_work();
}

// An SRQ raises an event when fewer receives are left than its limit.
static void limit(void) {
    struct ibv_srq_init_attr init = {.attr = {.max_wr = 16, .max_sge = 1}};
    struct ibv_srq *srq = ibv_create_srq(pd[1], &init);
    CHECK(srq);
    struct ibv_mr *a = registered(0), *b = registered(1);
    struct ibv_cq *cq[2];
    struct ibv_qp *qp[2];
    for (int i = 0; i < 2; i++) {
        CHECK((cq[i] = ibv_create_cq(context[i], DEPTH, NULL, NULL, 0)));
        struct ibv_qp_init_attr attr = {.send_cq = cq[i], .recv_cq = cq[i], .qp_type = IBV_QPT_RC, .sq_sig_all = 1};
        attr.srq = i ? srq : NULL;
        attr.cap = (struct ibv_qp_cap){DEPTH, i ? 0 : 1, 1, 1, 0};
        CHECK((qp[i] = ibv_create_qp(pd[i], &attr)));
    }
    for (int i = 0; i < 2; i++) connect_to(qp[i], qp[!i]->qp_num, context[!i]);
    for (int i = 0; i < 8; i++) {
        struct ibv_sge sge = {(uintptr_t)b->addr, 64, b->lkey};
        struct ibv_recv_wr wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1}, *bad;
        CHECK(ibv_post_srq_recv(srq, &wr, &bad) == 0);
    }
    struct ibv_srq_attr attr = {.srq_limit = 5};
    CHECK(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT) == 0);
    CHECK(ibv_query_srq(srq, &attr) == 0 && attr.srq_limit == 5);
    struct pollfd ready = {context[1]->async_fd, POLLIN, 0};
    struct pair p = {cq[0], {qp[0], qp[1]}};
    for (int i = 0; i < 4; i++) {
        CHECK(i == 3 || poll(&ready, 1, 0) == 0);
        CHECK(one(&p, IBV_WR_SEND, a, b, 8) == IBV_WC_SUCCESS);
        CHECK(completion(cq[1]).wr_id == (uint64_t)i);
    }
    struct ibv_async_event event;
    CHECK(poll(&ready, 1, 60000) == 1 && ibv_get_async_event(context[1], &event) == 0);
    CHECK(event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED && event.element.srq == srq);
    ibv_ack_async_event(&event);
    CHECK(ibv_query_srq(srq, &attr) == 0 && attr.srq_limit == 0);
    CHECK(ibv_destroy_qp(qp[1]) == 0 && ibv_destroy_srq(srq) == 0);
    others_work();
}

// A pair with a CQ on each side, of which one raises events.
static struct pair with_events(int side, struct ibv_comp_channel **channel, struct ibv_cq *cq[2]) {
    CHECK((*channel = ibv_create_comp_channel(context[side])));
    struct pair p;
    for (int i = 0; i < 2; i++) {
        CHECK((cq[i] = ibv_create_cq(context[i], 4 * DEPTH, NULL, i == side ? *channel : NULL, 0)));
        struct ibv_qp_init_attr init = {.send_cq = cq[i], .recv_cq = cq[i], .qp_type = IBV_QPT_RC, .sq_sig_all = 1};
        init.cap = (struct ibv_qp_cap){DEPTH, DEPTH, 1, 1, 0};
        CHECK((p.qp[i] = ibv_create_qp(pd[i], &init)));
    }
    for (int i = 0; i < 2; i++) connect_to(p.qp[i], p.qp[!i]->qp_num, context[!i]);
    p.cq = cq[0];
    return p;
}

static void expect_event(struct ibv_comp_channel *channel, struct ibv_cq *of) {
    struct pollfd ready = {channel->fd, POLLIN, 0};
    struct ibv_cq *cq;
    void *user;
    CHECK(poll(&ready, 1, 60000) == 1);
    CHECK(ibv_get_cq_event(channel, &cq, &user) == 0 && cq == of);
    ibv_ack_cq_events(cq, 1);
}

// A program that waits for solicited completions has an event for each of them, and none for others.
static void solicited(void) {
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq[2];
    struct pair p = with_events(1, &channel, cq);
    struct ibv_mr *a = registered(0), *b = registered(1);
    struct pollfd ready = {channel->fd, POLLIN, 0};
    for (int round = 0; round < 100; round++) {
        struct ibv_wc wc;
        // libionic arms with the poll that follows.
        CHECK(ibv_req_notify_cq(cq[1], 1) == 0 && ibv_poll_cq(cq[1], 1, &wc) == 0);
        for (int more = next_random() % 4; more >= 0; more--) {
            receive(p.qp[1], b, more);
            struct ibv_sge sge = {(uintptr_t)a->addr, 8, a->lkey};
            struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
            wr.send_flags = IBV_SEND_SIGNALED | (more ? 0 : IBV_SEND_SOLICITED);
            CHECK(ibv_post_send(p.qp[0], &wr, &bad) == 0 && next(&p) == IBV_WC_SUCCESS);
            if (more) CHECK(completion(cq[1]).wr_id == (uint64_t)more && poll(&ready, 1, 0) == 0);
        }
        expect_event(channel, cq[1]);
        CHECK(completion(cq[1]).wr_id == 0);
    }
}

// Each arm has one event, whichever of both doorbells the NIC sees first.
static void events(void) {
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq[2];
    struct pair p = with_events(0, &channel, cq);
    struct ibv_mr *a = registered(0), *b = registered(1);
    // This version of the library arms with the poll that follows, but for the first time.
    CHECK(ibv_req_notify_cq(p.cq, 0) == 0);
    for (int round = 0; round < 300; round++) {
        int posted = 1 + next_random() % 8, done = 0;
        for (int i = 0; i < posted; i++) CHECK(post(&p, IBV_WR_RDMA_WRITE, a, b, 8) == 0);
        while (done < posted) {
            expect_event(channel, p.cq);
            CHECK(ibv_req_notify_cq(p.cq, 0) == 0);
            struct ibv_wc wc[16];
            int n = ibv_poll_cq(p.cq, 1 + next_random() % 16, wc);
            CHECK(n >= 0);
            for (int i = 0; i < n; i++) CHECK(wc[i].status == IBV_WC_SUCCESS);
            done += n;
        }
    }
}

// A CQ goes on in another ring, whatever of the old one was not consumed, and every completion comes in its turn.
static void resize(void) {
    struct pair p = make_pair();
    struct ibv_mr *a = registered(0), *b = registered(1);
    uint64_t posted = 0, done = 0;
    // As it was made, for 4 * DEPTH and one more.
    int log = 2;
    for (int round = 0; round < 600 || done < posted; round++) {
        int more = round < 600 ? next_random() % 9 : 0;
        for (; more && posted - done < DEPTH; more--, posted++) {
            struct ibv_sge sge = {(uintptr_t)a->addr, 8, a->lkey};
            struct ibv_send_wr wr = {.wr_id = posted, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;
            wr.send_flags = IBV_SEND_SIGNALED;
            wr.wr.rdma.remote_addr = (uintptr_t)b->addr;
            wr.wr.rdma.rkey = b->rkey;
            CHECK(ibv_post_send(p.qp[0], &wr, &bad) == 0);
        }
        if (round % 5 == 0) {
            // Not the size that it has, which later libraries refuse.
            log = (log + 1 + next_random() % 3) % 4;
            int size = (2 * DEPTH << log) - 1;
            CHECK(ibv_resize_cq(p.cq, size) == 0 && p.cq->cqe >= size);
        }
        for (uint64_t wanted = next_random() % (posted - done + 1); wanted; wanted--, done++) {
            struct ibv_wc wc = completion(p.cq);
            CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == done);
        }
    }
}

// Rings of a child would be lost: it is told so, and so is who stores fewer bytes than a doorbell has.
static void signals(void) {
    volatile uint64_t *page[2];
    pages(page);
    for (int narrow = 0; narrow < 2; narrow++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            if (narrow) *(volatile uint32_t *)page[0] = 1;
            else *page[0] = 1;
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
    }
    others_work();
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    state = strtoull(argv[2], NULL, 10);
    fprintf(stderr, "seed %s\n", argv[2]);
    open_devices();
    if (!strcmp(argv[1], "noise")) noise();
    else if (!strcmp(argv[1], "threads")) threads();
    else if (!strcmp(argv[1], "errors")) errors();
    else if (!strcmp(argv[1], "limit")) limit();
    else if (!strcmp(argv[1], "events")) events();
    else if (!strcmp(argv[1], "solicited")) solicited();
    else if (!strcmp(argv[1], "signals")) signals();
    else if (!strcmp(argv[1], "resize")) resize();
    else fail(__LINE__, "a known case");
    puts("done");
    return 0;
}
