// Posts by MORI's own device code, which is not part of this project, into queues in shared memory that a
// test describes. Arguments: path and length of the memory. Lines of numbers in hexadecimal:
//   in   the queues, once, in the order of `describe`; offsets count from the beginning of the memory
//   in   "op THREAD KIND HERE THERE BYTES VALUE", then "go" for threads of one lane each, or "wave" for the lanes
//        of one wave, which all do as many steps, of the same kinds but for a last one
//   out  "> ADDRESS" of the memory, once; to "go" a line that begins with ">", with the values that each
//        thread has fetched, and a "|" behind those of each
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

// Its structures are to be those of the host, the rest the device's.
#include "mori/application/application_device_types.hpp"
// MORI's evaluate their argument once for each byte. Where that is a volatile word of a CQE, bytes of two
// CQEs come together: a count that goes from ff to 100 is then read as 1ff, and waits end too early.
#undef BE16TOH
#undef BE32TOH
#define BE16TOH(x) __builtin_bswap16(x)
#define BE32TOH(x) __builtin_bswap32(x)
#define __HIPCC__ 1
#include "mori/shmem/shmem_device_kernels.hpp"
#include "mori/shmem/shmem_ibgda_kernels.hpp"

using namespace mori;
using application::TransportType;

#if defined(MORI_DEVICE_NIC_BNXT)
constexpr auto NIC = core::ProviderType::BNXT;
constexpr auto VENDOR = core::RdmaDeviceVendorId::Broadcom;
#elif defined(MORI_DEVICE_NIC_IONIC)
constexpr auto NIC = core::ProviderType::PSD;
constexpr auto VENDOR = core::RdmaDeviceVendorId::Pensando;
#else
constexpr auto NIC = core::ProviderType::MLX5;
constexpr auto VENDOR = core::RdmaDeviceVendorId::Mellanox;
#endif

namespace mori::shmem {
GpuStates globalGpuStates;
}

namespace {

enum Kind : uint64_t {
    PUT,
    PUT_VALUE,
    PUT_ADD,
    PUT_SET,
    ADD,
    FETCH_ADD,
    COMPARE_SWAP,
    GET,
    QUIET,
    // By the primitives below: `bytes` each, `value` of them in a row, the last one signalled.
    WRITES,
    SENDS,
    RECEIVES,
};

struct Op {
    uint64_t thread, kind, here, there, bytes, value;
};

// More than the steps of one "go" take.
constexpr unsigned SECONDS = 120;

// Rank 0 is here, rank 1 is the peer.
constexpr int PEER = 1;
char* base;
core::RdmaEndpointDevice endpoints[2];
TransportType transports[2] = {TransportType::RDMA, TransportType::RDMA};
uintptr_t addresses[2];
uint32_t rkeys[2];
application::SymmMemObj object;
application::SymmMemObjPtr memory;
uint32_t here_lkey;
uint32_t cq_index;
// Posted by the primitives.
uint32_t sent, received, psn;

uint64_t number() {
    uint64_t value;
    if (scanf("%" SCNx64, &value) != 1) exit(3);
    return value;
}

// WQEs of a queue in bnxt_re's units are its slots by three.
void describe() {
    auto at = [] { return base + number(); };
    auto& [vendor, qpn, wq, cq, ibuf] = endpoints[PEER];
    vendor = VENDOR;
    qpn = static_cast<uint32_t>(number());
    wq.sqAddr = at();
    wq.sqWqeNum = static_cast<uint32_t>(number());
    wq.rqAddr = at();
    wq.rqWqeNum = static_cast<uint32_t>(number());
    wq.msntblAddr = at();
    wq.msntblNum = static_cast<uint32_t>(number());
    wq.mtuSize = static_cast<uint32_t>(number());
    wq.dbrRecAddr = at();
    wq.dbrAddr = at();
    wq.rqdbrAddr = at();
    wq.sq_dbval = wq.rq_dbval = static_cast<uint64_t>(qpn) << 24;
    cq.cqAddr = at();
    cq.cqeNum = static_cast<uint32_t>(number());
    cq.dbrRecAddr = cq.dbrAddr = at();
    cq.cq_dbval = number() << 24;
    ibuf.addr = reinterpret_cast<uintptr_t>(at());
    ibuf.nslots = static_cast<uint32_t>(number());
    // All of the memory has one key.
    ibuf.lkey = here_lkey = object.lkey = static_cast<uint32_t>(number());
    object.localPtr = base;
    addresses[PEER] = number();
    rkeys[PEER] = static_cast<uint32_t>(number());
    object.peerPtrs = addresses;
    object.peerRkeys = rkeys;
    memory.cpu = memory.gpu = &object;
    auto& states = shmem::globalGpuStates;
    states.rank = 0;
    states.worldSize = 2;
    states.numQpPerPe = 1;
    states.transportTypes = transports;
    states.rdmaEndpoints = endpoints;
}

// The last of `op.value` posts is signalled and announces all; then its completion is awaited.
void by_primitives(const Op& op) {
    auto& [vendor, qpn, wq, cq, ibuf] = endpoints[PEER];
    (void)vendor, (void)ibuf;
    const auto from = reinterpret_cast<uintptr_t>(base) + op.here;
    uint64_t bell = 0;
    for (uint64_t i = 0; i < op.value; ++i) {
        const uintptr_t part = from + i * op.bytes;
        if (op.kind == RECEIVES) {
            bell = core::PostRecv<NIC>(wq, received++, true, qpn, part, here_lkey, op.bytes);
            continue;
        }
        const bool last = i + 1 == op.value;
        bell = op.kind == SENDS
                   ? core::PostSend<NIC>(wq, sent, sent, psn, last, qpn, part, here_lkey, op.bytes)
                   : core::PostWrite<NIC>(wq, sent, sent, psn, last, qpn, part, here_lkey,
                                          addresses[PEER] + op.there + i * op.bytes, rkeys[PEER],
                                          op.bytes);
        ++sent;
        psn += op.bytes ? (op.bytes + wq.mtuSize - 1) / wq.mtuSize : 1;
    }
    uint32_t* lock = &wq.postSendLock;
    if (op.kind == RECEIVES) {
        return core::UpdateDbrAndRingDbRecv<NIC>(wq.dbrRecAddr, received, wq.rqdbrAddr, bell, lock);
    }
    core::UpdateDbrAndRingDbSend<NIC>(wq.dbrRecAddr, sent, wq.dbrAddr, bell, lock);
    uint32_t counter = 0;
    int found;
    do {
        sched_yield();
        found = core::PollCq<NIC>(cq.cqAddr, cq.cqeNum, &cq_index, &counter);
    } while (found < 0);
    // mlx5 tells the index of the last one, the others how many there are.
    const uint32_t expected = NIC == core::ProviderType::MLX5 ? sent - 1 : sent;
    if (found != 0 || static_cast<uint16_t>(counter) != static_cast<uint16_t>(expected)) {
        fprintf(stderr, "completion %d of %x, expected %x\n", found, counter, expected);
        exit(4);
    }
    ++cq_index;
    // MORI rings no CQ of bnxt_re.
    if (NIC != core::ProviderType::BNXT) core::UpdateCqDbrRecord<NIC>(cq, cq_index);
}

void run(const Op& op, std::vector<uint64_t>& fetched) {
    constexpr auto RDMA = TransportType::RDMA;
    uint64_t value = op.value, compare = op.bytes;
    auto put = [&](core::atomicType signal) {
        shmem::ShmemPutMemNbiSignalThreadKernel<RDMA, true>(memory, op.there, memory, op.here,
                                                           op.bytes, memory, op.there - 8, value,
                                                           signal, PEER, 0);
    };
    auto fetch = [&](core::atomicType kind) {
        fetched.push_back(shmem::ShmemAtomicTypeFetchThreadKernel<RDMA, uint64_t>(
            memory, op.there, &value, &compare, 8, kind, PEER, 0));
    };
    switch (op.kind) {
        case PUT:
            return shmem::ShmemPutMemNbiThreadKernel<RDMA>(memory, op.there, memory, op.here,
                                                          op.bytes, PEER, 0);
        case PUT_VALUE:
            return shmem::ShmemPutSizeImmNbiThreadKernel<RDMA>(memory, op.there, &value, op.bytes,
                                                              PEER, 0);
        case PUT_ADD: return put(core::AMO_SIGNAL_ADD);
        case PUT_SET: return put(core::AMO_SIGNAL_SET);
        case ADD:
            return shmem::ShmemAtomicSizeNonFetchThreadKernel<RDMA>(memory, op.there, &value, 8,
                                                                   core::AMO_ADD, PEER, 0);
        case FETCH_ADD: return fetch(core::AMO_FETCH_ADD);
        case COMPARE_SWAP: return fetch(core::AMO_COMPARE_SWAP);
        case GET:
            return shmem::ShmemGetMemNbiThreadKernel<RDMA>(memory, op.here, memory, op.there,
                                                          op.bytes, PEER, 0);
        case QUIET: return shmem::ShmemQuietThreadKernel<RDMA>(PEER, 0);
        default: return by_primitives(op);
    }
}

// Every thread does what is its own, in order.
void go(const std::vector<Op>& ops, bool together) {
    // A completion that does not come is an end of this process, which the test sees.
    alarm(SECONDS);
    uint64_t count = 0;
    for (const Op& op : ops) count = op.thread >= count ? op.thread + 1 : count;
    std::vector<std::vector<uint64_t>> fetched(count);
    std::vector<std::thread> threads;
    Wave lanes;
    for (uint64_t thread = 0; thread < count; ++thread) {
        threads.emplace_back([&, thread] {
            if (together) {
                threadIdx.x = static_cast<unsigned>(thread);
                wave = &lanes;
                wave->await_turn();
            }
            for (const Op& op : ops) {
                if (op.thread != thread) continue;
                if (op.kind == QUIET && wave) {
                    // Waiting is not for lanes that meet: what they see of the counters differs.
                    wave->end_turn();
                    wave = nullptr;
                }
                run(op, fetched[thread]);
            }
        });
    }
    for (auto& thread : threads) thread.join();
    printf("> ");
    for (const auto& values : fetched) {
        for (uint64_t value : values) printf("%" PRIx64 " ", value);
        printf("| ");
    }
    puts("");
    fflush(stdout);
}

}  // namespace

int main(int, char** arguments) {
    const int fd = open(arguments[1], O_RDWR | O_CLOEXEC);
    const size_t len = strtoull(arguments[2], nullptr, 16);
    void* mapped = mmap(nullptr, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED) return 2;
    base = static_cast<char*>(mapped);
    printf("> %" PRIxPTR "\n", reinterpret_cast<uintptr_t>(base));
    fflush(stdout);
    describe();
    std::vector<Op> ops;
    char word[8];
    while (scanf("%7s", word) == 1) {
        const bool together = strcmp(word, "wave") == 0;
        if (together || strcmp(word, "go") == 0) {
            go(ops, together);
            ops.clear();
        } else {
            Op op;
            for (uint64_t* field : {&op.thread, &op.kind, &op.here, &op.there, &op.bytes, &op.value}) {
                *field = number();
            }
            ops.push_back(op);
        }
    }
}
