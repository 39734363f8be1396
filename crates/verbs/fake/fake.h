// A libibverbs without a kernel: two devices whose queue pairs reach each other inside the process.
// Work is done while it is posted. For tests of what stands on libibverbs; see src/testing.rs.
#pragma once

#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// The header redirects these to inline functions.
#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr

enum { DEVICES = 2, GIDS = 8, MAX_WR = 1024, MAX_SGE = 4, MAX_CQE = 4096, MAX_RD_ATOMIC = 16 };
enum { MAX_INLINE = 256, BATCH = 16, CLOCK_KHZ = 1000000 };

// One lock for everything.
extern pthread_mutex_t fake_lock;

// The number of live objects, by kind; a test reads it with fake_live().
enum fake_kind { FAKE_CONTEXT, FAKE_PD, FAKE_MR, FAKE_CHANNEL, FAKE_CQ, FAKE_QP, FAKE_SRQ, FAKE_KINDS };
extern int fake_alive[FAKE_KINDS];

struct fake_context {
    struct verbs_context verbs;
    int device;
    int event_pipe;
};

struct fake_mr {
    struct ibv_mr mr;
    uint64_t iova;
    uint64_t offset;
    int access;
    struct fake_mr *next;
};

struct fake_channel {
    struct ibv_comp_channel channel;
    int event_pipe;
};

struct fake_cq {
    union {
        struct ibv_cq cq;
        struct ibv_cq_ex ex;
    };
    struct ibv_wc ring[MAX_CQE];
    unsigned head, count;
    bool armed, solicited_only, overrun;
    int users;
    // Being polled step by step, and the completion that is looked at.
    bool polling;
    struct ibv_wc now;
};

struct fake_recv {
    uint64_t id;
    int count;
    struct ibv_sge sges[MAX_SGE];
};

struct fake_queue {
    struct fake_recv ring[MAX_WR];
    unsigned head, count, room;
};

struct fake_srq {
    struct ibv_srq srq;
    struct fake_queue queue;
    uint32_t limit;
    int users;
};

// Work requests on their way into a send queue. `unset` is due its data.
struct fake_batch {
    struct ibv_send_wr wrs[BATCH];
    struct ibv_sge sges[BATCH][MAX_SGE];
    uint8_t inline_data[BATCH][MAX_INLINE];
    unsigned count;
    bool begun, unset;
    int error;
};

struct fake_qp {
    union {
        struct ibv_qp qp;
        struct ibv_qp_ex ex;
    };
    // Of a QP that takes batches.
    struct fake_batch *batch;
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    struct fake_queue recv;
    struct fake_qp *next;
};

// The error that `call` is to fail with now, or 0. Takes the lock.
int fake_refused(const char *call);
// As above: sets errno.
bool fake_fails(const char *call);

// All of these want the lock held.
struct fake_mr *fake_find_mr(uint32_t key, const struct ibv_pd *pd, uint64_t addr, uint64_t len, int access);
void *fake_address(const struct fake_mr *mr, uint64_t addr);
void fake_complete(struct fake_cq *cq, const struct ibv_wc *wc, bool solicited);
void fake_event(struct ibv_context *context, enum ibv_event_type type, void *object);
// Drops unread events and that name `object`, as the kernel does.
void fake_forget_events(struct ibv_context *context, const void *object);
void fake_forget_cq(struct ibv_comp_channel *channel, const struct ibv_cq *cq);
void fake_flush(struct fake_qp *qp);
struct fake_queue *fake_receives(struct fake_qp *qp);

// Polls and batches that were begun and not ended.
extern int fake_begun;

struct ibv_cq_ex *fake_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr);
struct ibv_qp *fake_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);
int fake_advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags, struct ibv_sge *sges,
                   uint32_t count);

int fake_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int fake_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int fake_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int fake_poll_cq(struct ibv_cq *cq, int count, struct ibv_wc *wc);
int fake_req_notify_cq(struct ibv_cq *cq, int solicited_only);
struct fake_qp *fake_find_qp(uint32_t qpn);
