// Protection domains, memory, CQs, SRQs, QPs: making, changing, destroying.
#include "fake.h"

#include <unistd.h>

static struct fake_mr *regions;
static struct fake_qp *pairs;
// Bytes of inline data that a QP takes at most.
static uint32_t max_inline = MAX_INLINE;

void fake_max_inline(uint32_t bytes) { max_inline = bytes; }

static uint32_t next_key = 0x1000, next_qpn = 0x11;

static void alive(enum fake_kind kind, int change) {
    pthread_mutex_lock(&fake_lock);
    fake_alive[kind] += change;
    pthread_mutex_unlock(&fake_lock);
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context) {
    if (fake_fails("ibv_alloc_pd"))
        return NULL;
    struct ibv_pd *pd = calloc(1, sizeof *pd);
    pd->context = context;
    alive(FAKE_PD, 1);
    return pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd) {
    // `handle` counts what lies in the domain.
    if (pd->handle)
        return EBUSY;
    alive(FAKE_PD, -1);
    free(pd);
    return 0;
}

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr) {
    (void)attr;
    struct ibv_ah *ah = calloc(1, sizeof *ah);
    *ah = (struct ibv_ah){.context = pd->context, .pd = pd};
    return ah;
}

int ibv_destroy_ah(struct ibv_ah *ah) {
    free(ah);
    return 0;
}

static struct ibv_mr *region(struct ibv_pd *pd, void *addr, size_t len, uint64_t iova, int access) {
    struct fake_mr *mr = calloc(1, sizeof *mr);
    mr->mr = (struct ibv_mr){.context = pd->context, .pd = pd, .addr = addr, .length = len};
    mr->iova = iova;
    mr->access = access;
    pthread_mutex_lock(&fake_lock);
    // Keys of other owners lie between ours.
    mr->mr.lkey = mr->mr.rkey = next_key += 0x11;
    mr->next = regions;
    regions = mr;
    pd->handle++;
    fake_alive[FAKE_MR]++;
    pthread_mutex_unlock(&fake_lock);
    return &mr->mr;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t len, int access) {
    return fake_fails("ibv_reg_mr") ? NULL : region(pd, addr, len, (uint64_t)addr, access);
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t len, uint64_t iova, unsigned access) {
    return fake_fails("ibv_reg_mr") ? NULL : region(pd, addr, len, iova, (int)access);
}

// A "dmabuf" of this library may be any file, whose bytes are nobody's. They move only where a test says
// that the addresses of the memory are this process's own.
static bool dmabuf_is_here;

void fake_dmabuf_is_here(int here) { dmabuf_is_here = here; }

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t len, uint64_t iova, int fd, int access) {
    if (fake_fails("ibv_reg_dmabuf_mr"))
        return NULL;
    off_t size = lseek(fd, 0, SEEK_END);
    if (size < 0 || offset > (uint64_t)size || len > (uint64_t)size - offset) {
        errno = size < 0 ? EBADF : EINVAL;
        return NULL;
    }
    struct ibv_mr *mr = region(pd, dmabuf_is_here ? (void *)iova : NULL, len, iova, access);
    ((struct fake_mr *)mr)->offset = offset;
    return mr;
}

int ibv_dereg_mr(struct ibv_mr *mr) {
    int error = fake_refused("ibv_dereg_mr");
    if (error)
        return error;
    pthread_mutex_lock(&fake_lock);
    struct fake_mr **at = &regions;
    while (*at != (struct fake_mr *)mr)
        at = &(*at)->next;
    *at = (*at)->next;
    mr->pd->handle--;
    fake_alive[FAKE_MR]--;
    pthread_mutex_unlock(&fake_lock);
    free(mr);
    return 0;
}

struct fake_mr *fake_find_mr(uint32_t key, const struct ibv_pd *pd, uint64_t addr, uint64_t len, int access) {
    for (struct fake_mr *mr = regions; mr; mr = mr->next)
        if (mr->mr.lkey == key)
            return mr->mr.pd == pd && mr->mr.addr && (mr->access & access) == access && addr >= mr->iova &&
                           addr - mr->iova <= mr->mr.length && len <= mr->mr.length - (addr - mr->iova)
                       ? mr
                       : NULL;
    return NULL;
}

static struct fake_mr *by_key(uint32_t key) {
    struct fake_mr *mr = regions;
    while (mr && mr->mr.lkey != key)
        mr = mr->next;
    return mr;
}

int fake_mr_access(uint32_t key) {
    pthread_mutex_lock(&fake_lock);
    struct fake_mr *mr = by_key(key);
    int access = mr ? mr->access : -1;
    pthread_mutex_unlock(&fake_lock);
    return access;
}

// Only memory that is registered on demand can be paged in ahead.
int fake_advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags, struct ibv_sge *sges,
                   uint32_t count) {
    int error = fake_refused("ibv_advise_mr");
    (void)flags;
    pthread_mutex_lock(&fake_lock);
    for (uint32_t i = 0; i < count && !error; i++) {
        int access = IBV_ACCESS_ON_DEMAND | (advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE ? IBV_ACCESS_LOCAL_WRITE : 0);
        if (!fake_find_mr(sges[i].lkey, pd, sges[i].addr, sges[i].length, access))
            error = EINVAL;
    }
    pthread_mutex_unlock(&fake_lock);
    return error;
}

// Offset in its dmabuf, first address, length.
int fake_mr_place(uint32_t key, uint64_t place[3]) {
    pthread_mutex_lock(&fake_lock);
    struct fake_mr *mr = by_key(key);
    if (mr)
        memcpy(place, (uint64_t[]){mr->offset, mr->iova, mr->mr.length}, 3 * sizeof *place);
    pthread_mutex_unlock(&fake_lock);
    return mr ? 0 : -1;
}

void *fake_address(const struct fake_mr *mr, uint64_t addr) { return (char *)mr->mr.addr + (addr - mr->iova); }

// ---- CQs ----

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int entries, void *user, struct ibv_comp_channel *channel,
                             int vector) {
    if (fake_fails("ibv_create_cq"))
        return NULL;
    if (entries > MAX_CQE || vector >= context->num_comp_vectors) {
        errno = EINVAL;
        return NULL;
    }
    struct fake_cq *cq = calloc(1, sizeof *cq);
    cq->cq = (struct ibv_cq){.context = context, .channel = channel, .cq_context = user, .cqe = entries};
    if (channel)
        channel->refcnt++;
    alive(FAKE_CQ, 1);
    return &cq->cq;
}

int ibv_resize_cq(struct ibv_cq *cq, int entries) {
    if (entries > MAX_CQE || (unsigned)entries < ((struct fake_cq *)cq)->count)
        return EINVAL;
    cq->cqe = entries;
    return 0;
}

int ibv_destroy_cq(struct ibv_cq *cq) {
    if (((struct fake_cq *)cq)->users)
        return EBUSY;
    if (cq->channel) {
        fake_forget_cq(cq->channel, cq);
        cq->channel->refcnt--;
    }
    fake_forget_events(cq->context, cq);
    alive(FAKE_CQ, -1);
    // Its lock is held by somebody who has forgotten it.
    if (((struct fake_cq *)cq)->polling)
        abort();
    free(cq);
    return 0;
}

// ---- SRQs ----

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr) {
    if (fake_fails("ibv_create_srq"))
        return NULL;
    if (attr->attr.max_wr > MAX_WR || attr->attr.max_sge > MAX_SGE) {
        errno = EINVAL;
        return NULL;
    }
    struct fake_srq *srq = calloc(1, sizeof *srq);
    srq->srq = (struct ibv_srq){.context = pd->context, .srq_context = attr->srq_context, .pd = pd};
    attr->attr.max_sge = MAX_SGE;
    srq->queue.room = attr->attr.max_wr;
    pd->handle++;
    alive(FAKE_SRQ, 1);
    return &srq->srq;
}

int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask) {
    struct fake_srq *fake = (struct fake_srq *)srq;
    if (mask != IBV_SRQ_LIMIT || attr->srq_limit > fake->queue.room)
        return EINVAL;
    fake->limit = attr->srq_limit;
    return 0;
}

int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr) {
    struct fake_srq *fake = (struct fake_srq *)srq;
    *attr = (struct ibv_srq_attr){.max_wr = fake->queue.room, .max_sge = MAX_SGE, .srq_limit = fake->limit};
    return 0;
}

int ibv_destroy_srq(struct ibv_srq *srq) {
    if (((struct fake_srq *)srq)->users)
        return EBUSY;
    srq->pd->handle--;
    fake_forget_events(srq->context, srq);
    alive(FAKE_SRQ, -1);
    free(srq);
    return 0;
}

// ---- QPs ----

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init) {
    if (fake_fails("ibv_create_qp"))
        return NULL;
    if (init->qp_type != IBV_QPT_RC || init->cap.max_send_wr > MAX_WR || init->cap.max_recv_wr > MAX_WR ||
        init->cap.max_send_sge > MAX_SGE || init->cap.max_recv_sge > MAX_SGE || init->cap.max_inline_data > max_inline) {
        errno = EINVAL;
        return NULL;
    }
    struct fake_qp *qp = calloc(1, sizeof *qp);
    qp->init = *init;
    // A device gives what it has, not what it was asked for.
    init->cap.max_send_sge = init->cap.max_recv_sge = MAX_SGE;
    qp->recv.room = init->srq ? 0 : init->cap.max_recv_wr;
    ((struct fake_cq *)init->send_cq)->users++;
    ((struct fake_cq *)init->recv_cq)->users++;
    if (init->srq)
        ((struct fake_srq *)init->srq)->users++;
    pthread_mutex_lock(&fake_lock);
    qp->qp = (struct ibv_qp){.context = pd->context, .qp_context = init->qp_context, .pd = pd,
                             .send_cq = init->send_cq, .recv_cq = init->recv_cq, .srq = init->srq,
                             .qp_num = next_qpn++, .state = IBV_QPS_RESET, .qp_type = IBV_QPT_RC};
    qp->next = pairs;
    pairs = qp;
    pd->handle++;
    fake_alive[FAKE_QP]++;
    pthread_mutex_unlock(&fake_lock);
    return &qp->qp;
}

struct fake_qp *fake_find_qp(uint32_t qpn) {
    struct fake_qp *qp = pairs;
    while (qp && qp->qp.qp_num != qpn)
        qp = qp->next;
    return qp;
}

int ibv_destroy_qp(struct ibv_qp *base) {
    struct fake_qp *qp = (struct fake_qp *)base;
    pthread_mutex_lock(&fake_lock);
    struct fake_qp **at = &pairs;
    while (*at != qp)
        at = &(*at)->next;
    *at = qp->next;
    ((struct fake_cq *)base->send_cq)->users--;
    ((struct fake_cq *)base->recv_cq)->users--;
    if (base->srq)
        ((struct fake_srq *)base->srq)->users--;
    base->pd->handle--;
    fake_forget_events(base->context, base);
    fake_alive[FAKE_QP]--;
    pthread_mutex_unlock(&fake_lock);
    if (qp->batch && qp->batch->begun)
        abort();
    free(qp->batch);
    free(qp);
    return 0;
}

// As the kernel: a transition needs its attributes and takes a few more.
static int check_modify(enum ibv_qp_state from, enum ibv_qp_state to, int mask, const struct ibv_qp_attr *attr) {
    static const int to_init = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    static const int to_rtr = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                              IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    static const int to_rts = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                              IBV_QP_MAX_QP_RD_ATOMIC;
    static const int runtime = IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER;
    int required = 0, optional = 0;
    mask &= ~IBV_QP_STATE;
    if (to == IBV_QPS_RESET || to == IBV_QPS_ERR)
        ;
    else if (from == IBV_QPS_RESET && to == IBV_QPS_INIT)
        required = to_init;
    else if (from == IBV_QPS_INIT && to == IBV_QPS_INIT)
        optional = to_init;
    else if (from == IBV_QPS_INIT && to == IBV_QPS_RTR)
        required = to_rtr, optional = IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX;
    else if (from == IBV_QPS_RTR && to == IBV_QPS_RTS)
        required = to_rts, optional = runtime;
    else if (from == IBV_QPS_RTS && to == IBV_QPS_SQD)
        optional = IBV_QP_EN_SQD_ASYNC_NOTIFY;
    else if ((from == IBV_QPS_RTS || from == IBV_QPS_SQD) && to == IBV_QPS_RTS)
        optional = runtime;
    else if (from == IBV_QPS_SQD && to == IBV_QPS_SQD)
        optional = runtime | IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT;
    else
        return EINVAL;
    if ((mask & required) != required || mask & ~(required | optional))
        return EINVAL;
    bool fits = (!(mask & IBV_QP_PORT) || attr->port_num == 1) && (!(mask & IBV_QP_AV) || attr->ah_attr.port_num == 1) &&
                (!(mask & IBV_QP_PKEY_INDEX) || attr->pkey_index == 0) &&
                (!(mask & IBV_QP_PATH_MTU) || attr->path_mtu <= IBV_MTU_1024) &&
                (!(mask & IBV_QP_MAX_DEST_RD_ATOMIC) || attr->max_dest_rd_atomic <= MAX_RD_ATOMIC) &&
                (!(mask & IBV_QP_MAX_QP_RD_ATOMIC) || attr->max_rd_atomic <= MAX_RD_ATOMIC);
    return fits ? 0 : EINVAL;
}

int ibv_modify_qp(struct ibv_qp *base, struct ibv_qp_attr *attr, int mask) {
    struct fake_qp *qp = (struct fake_qp *)base;
    enum ibv_qp_state to = mask & IBV_QP_STATE ? attr->qp_state : base->state;
    int error = fake_refused("ibv_modify_qp");
    if (!error)
        error = check_modify(base->state, to, mask, attr);
    if (error)
        return error;
    pthread_mutex_lock(&fake_lock);
#define TAKE(bit, field) if (mask & (bit)) qp->attr.field = attr->field
    TAKE(IBV_QP_ACCESS_FLAGS, qp_access_flags);
    TAKE(IBV_QP_PORT, port_num);
    TAKE(IBV_QP_AV, ah_attr);
    TAKE(IBV_QP_PATH_MTU, path_mtu);
    TAKE(IBV_QP_DEST_QPN, dest_qp_num);
    TAKE(IBV_QP_RQ_PSN, rq_psn);
    TAKE(IBV_QP_SQ_PSN, sq_psn);
    TAKE(IBV_QP_TIMEOUT, timeout);
    TAKE(IBV_QP_RETRY_CNT, retry_cnt);
    TAKE(IBV_QP_RNR_RETRY, rnr_retry);
    TAKE(IBV_QP_MIN_RNR_TIMER, min_rnr_timer);
    TAKE(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
    TAKE(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
    if (base->state == IBV_QPS_RTS && to == IBV_QPS_SQD && mask & IBV_QP_EN_SQD_ASYNC_NOTIFY && attr->en_sqd_async_notify)
        fake_event(base->context, IBV_EVENT_SQ_DRAINED, base);
    base->state = to;
    if (to == IBV_QPS_RESET)
        qp->recv.count = 0;
    if (to == IBV_QPS_ERR)
        fake_flush(qp);
    pthread_mutex_unlock(&fake_lock);
    return 0;
}

int ibv_query_qp(struct ibv_qp *base, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init) {
    struct fake_qp *qp = (struct fake_qp *)base;
    (void)mask;
    *attr = qp->attr;
    attr->qp_state = attr->cur_qp_state = base->state;
    *init = qp->init;
    return 0;
}
