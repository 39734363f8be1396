// Extended CQs and QPs: completions looked at one by one, requests posted in batches.
//
// A driver holds a lock from the beginning to the end. A thread that begins twice would wait for
// ever; here that aborts, and so does any other misuse that drivers do not check. Batches have SEND,
// SEND that takes a key back, and WRITE here; the others are tried on Linux's soft-RoCE (`verbs_extended`).
#include "fake.h"

#include <time.h>

int fake_begun;

static void begin(bool *what) {
    if (*what)
        abort();
    *what = true;
    __atomic_add_fetch(&fake_begun, 1, __ATOMIC_RELAXED);
}

static void end(bool *what) {
    if (!*what)
        abort();
    *what = false;
    __atomic_sub_fetch(&fake_begun, 1, __ATOMIC_RELAXED);
}

// ---- CQs ----

static struct fake_cq *polled(struct ibv_cq_ex *base) {
    struct fake_cq *cq = (struct fake_cq *)base;
    if (!cq->polling)
        abort();
    return cq;
}

static int take(struct fake_cq *cq) {
    int found = fake_poll_cq(&cq->cq, 1, &cq->now);
    cq->ex.wr_id = cq->now.wr_id;
    cq->ex.status = cq->now.status;
    return found < 0 ? EIO : found ? 0 : ENOENT;
}

static int start_poll(struct ibv_cq_ex *base, struct ibv_poll_cq_attr *attr) {
    struct fake_cq *cq = (struct fake_cq *)base;
    int error = attr->comp_mask ? EINVAL : fake_refused("ibv_start_poll");
    if (cq->polling)
        abort();
    if (!error)
        error = take(cq);
    if (!error)
        begin(&cq->polling);
    return error;
}

static int next_poll(struct ibv_cq_ex *base) {
    int error = fake_refused("ibv_next_poll");
    return error ? error : take(polled(base));
}

static void end_poll(struct ibv_cq_ex *base) { end(&((struct fake_cq *)base)->polling); }
static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *cq) { return polled(cq)->now.opcode; }
static uint32_t read_vendor_err(struct ibv_cq_ex *cq) { return polled(cq)->now.vendor_err; }
static uint32_t read_byte_len(struct ibv_cq_ex *cq) { return polled(cq)->now.byte_len; }
static __be32 read_imm_data(struct ibv_cq_ex *cq) { return polled(cq)->now.imm_data; }
static uint32_t read_qp_num(struct ibv_cq_ex *cq) { return polled(cq)->now.qp_num; }
static uint32_t read_src_qp(struct ibv_cq_ex *cq) { return polled(cq)->now.src_qp; }
static unsigned read_wc_flags(struct ibv_cq_ex *cq) { return polled(cq)->now.wc_flags; }

// The device's clock, with CLOCK_KHZ.
static uint64_t read_completion_ts(struct ibv_cq_ex *cq) {
    struct timespec now;
    polled(cq);
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

struct ibv_cq_ex *fake_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr) {
    static const uint64_t known = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
    if (fake_fails("ibv_create_cq_ex"))
        return NULL;
    if (attr->wc_flags & ~known || attr->comp_mask) {
        errno = EOPNOTSUPP;
        return NULL;
    }
    struct ibv_cq *base = ibv_create_cq(context, (int)attr->cqe, attr->cq_context, attr->channel, (int)attr->comp_vector);
    if (!base)
        return NULL;
    struct ibv_cq_ex *cq = (struct ibv_cq_ex *)base;
    cq->start_poll = start_poll;
    cq->next_poll = next_poll;
    cq->end_poll = end_poll;
    cq->read_opcode = read_opcode;
    cq->read_vendor_err = read_vendor_err;
    cq->read_wc_flags = read_wc_flags;
#define READER(bit, name) if (attr->wc_flags & (bit)) cq->name = name
    READER(IBV_WC_EX_WITH_BYTE_LEN, read_byte_len);
    READER(IBV_WC_EX_WITH_IMM, read_imm_data);
    READER(IBV_WC_EX_WITH_QP_NUM, read_qp_num);
    READER(IBV_WC_EX_WITH_SRC_QP, read_src_qp);
    READER(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP, read_completion_ts);
    return cq;
}

// ---- QPs ----

static struct fake_batch *batch_of(struct ibv_qp_ex *qp) {
    struct fake_batch *batch = ((struct fake_qp *)qp)->batch;
    if (!batch->begun)
        abort();
    return batch;
}

// The next request, or a place that is thrown away.
static struct ibv_send_wr *request(struct ibv_qp_ex *qp, enum ibv_wr_opcode opcode) {
    static struct ibv_send_wr nowhere;
    struct fake_batch *batch = batch_of(qp);
    if (batch->unset)
        abort();
    batch->unset = true;
    if (batch->count == BATCH)
        batch->error = ENOMEM;
    if (batch->error)
        return &nowhere;
    struct ibv_send_wr *wr = &batch->wrs[batch->count++];
    // As drivers do, inline data are known by the call that sets them.
    *wr = (struct ibv_send_wr){.wr_id = qp->wr_id, .opcode = opcode, .send_flags = qp->wr_flags & ~(unsigned)IBV_SEND_INLINE};
    return wr;
}

static void wr_send(struct ibv_qp_ex *qp) { request(qp, IBV_WR_SEND); }
static void wr_send_inv(struct ibv_qp_ex *qp, uint32_t key) { request(qp, IBV_WR_SEND_WITH_INV)->invalidate_rkey = key; }
static void wr_rdma_write(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t addr) {
    struct ibv_send_wr *wr = request(qp, IBV_WR_RDMA_WRITE);
    wr->wr.rdma.rkey = rkey, wr->wr.rdma.remote_addr = addr;
}

// The data of the request begun last: entries, to which inline data become one.
static void set(struct ibv_qp_ex *qp, size_t count, const struct ibv_sge *sges) {
    struct fake_batch *batch = batch_of(qp);
    if (!batch->unset)
        abort();
    batch->unset = false;
    if (!batch->error && count > MAX_SGE)
        batch->error = ENOMEM;
    if (batch->error)
        return;
    unsigned last = batch->count - 1;
    memcpy(batch->sges[last], sges, count * sizeof *sges);
    batch->wrs[last].sg_list = batch->sges[last];
    batch->wrs[last].num_sge = (int)count;
}

static void wr_set_sge_list(struct ibv_qp_ex *qp, size_t count, const struct ibv_sge *sges) { set(qp, count, sges); }
static void wr_set_sge(struct ibv_qp_ex *qp, uint32_t lkey, uint64_t addr, uint32_t length) {
    struct ibv_sge sge = {.addr = addr, .length = length, .lkey = lkey};
    set(qp, 1, &sge);
}
static void wr_set_inline_data(struct ibv_qp_ex *qp, void *addr, size_t length) {
    struct fake_batch *batch = batch_of(qp);
    if (length > MAX_INLINE)
        abort();
    unsigned last = batch->count ? batch->count - 1 : 0;
    struct ibv_sge sge = {.addr = (uint64_t)batch->inline_data[last], .length = (uint32_t)length};
    if (!batch->error) {
        memcpy(batch->inline_data[last], addr, length);
        batch->wrs[last].send_flags |= IBV_SEND_INLINE;
    }
    set(qp, 1, &sge);
}

static void wr_start(struct ibv_qp_ex *qp) {
    struct fake_batch *batch = ((struct fake_qp *)qp)->batch;
    begin(&batch->begun);
    batch->count = 0;
    batch->error = 0;
    batch->unset = false;
}

static int wr_complete(struct ibv_qp_ex *qp) {
    struct fake_batch *batch = batch_of(qp);
    struct ibv_send_wr *bad;
    if (batch->unset)
        abort();
    end(&batch->begun);
    int error = fake_refused("ibv_wr_complete");
    if (error || batch->error)
        return error ? error : batch->error;
    for (unsigned i = 0; i + 1 < batch->count; i++)
        batch->wrs[i].next = &batch->wrs[i + 1];
    return batch->count ? fake_post_send(&qp->qp_base, batch->wrs, &bad) : 0;
}

static void wr_abort(struct ibv_qp_ex *qp) { end(&batch_of(qp)->begun); }

struct ibv_qp *fake_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr) {
    static const uint64_t known = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |
                                  IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |
                                  IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |
                                  IBV_QP_EX_WITH_SEND_WITH_INV;
    if (fake_fails("ibv_create_qp_ex"))
        return NULL;
    if (attr->comp_mask != (IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) || attr->pd->context != context ||
        attr->send_ops_flags & ~known) {
        errno = EOPNOTSUPP;
        return NULL;
    }
    // The classic attributes are a prefix of the extended ones.
    struct ibv_qp *base = ibv_create_qp(attr->pd, (struct ibv_qp_init_attr *)attr);
    if (!base)
        return NULL;
    struct ibv_qp_ex *qp = (struct ibv_qp_ex *)base;
    ((struct fake_qp *)base)->batch = calloc(1, sizeof(struct fake_batch));
    qp->wr_start = wr_start, qp->wr_complete = wr_complete, qp->wr_abort = wr_abort;
    qp->wr_set_sge = wr_set_sge, qp->wr_set_sge_list = wr_set_sge_list;
    qp->wr_set_inline_data = wr_set_inline_data;
#define OPERATION(bit, name) if (attr->send_ops_flags & (bit)) qp->name = name
    OPERATION(IBV_QP_EX_WITH_SEND, wr_send);
    OPERATION(IBV_QP_EX_WITH_SEND_WITH_INV, wr_send_inv);
    OPERATION(IBV_QP_EX_WITH_RDMA_WRITE, wr_rdma_write);
    return base;
}

struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp) {
    return ((struct fake_qp *)qp)->batch && !fake_refused("ibv_qp_to_qp_ex") ? (struct ibv_qp_ex *)qp : NULL;
}
