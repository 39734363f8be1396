// DeepEP's low-latency kernels with the tokens of `warpverbs perf ep`: expert-major, bf16, one launch for sending and
// receiving. Every expert gives a row back as it is, with weight 1: a sum is the row as often as the token has choices.
#include "rig.h"

#include <legacy/config.hpp>

namespace ep = deep_ep::legacy;
namespace ll = deep_ep::legacy::internode_ll;

// Beside the kernels that read them: stand_in.cuh.
void set_heaps(const uint64_t* bases, int count);

namespace {

constexpr int both = LEGACY_LOW_LATENCY_SEND_PHASE | LEGACY_LOW_LATENCY_RECV_PHASE;

struct Memory {
  uint8_t* heap;
  uint8_t* workspace;
  uint16_t *rows, *packed, *sums;
  int64_t *experts, *ranges;
  float* weights;
  int *tokens, *counts;
};

struct DeepEp : Peer {
  const Load& load;
  // Tokens that a rank may have: DeepEP wants a multiple of 4 of all ranks.
  int most;
  size_t heap_bytes;
  int sms;
  Memory of[ranks];
  // Which of its two buffers a rank's next call takes.
  int next[ranks] = {};

  explicit DeepEp(const Load& load) : load(load), most((load.tokens + 1) / 2 * 2) {
    heap_bytes = ep::get_low_latency_rdma_size_hint(most, hidden, ranks, experts);
    CHECK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
    const size_t places = size_t{local_experts} * ranks * most;
    uint64_t bases[ranks];
    for (int rank = 0; rank < ranks; ++rank) {
      of[rank] = Memory{
          room<uint8_t>(rank, heap_bytes), room<uint8_t>(rank, LEGACY_NUM_WORKSPACE_BYTES),
          room(rank, load.rows(rank, [](int) { return 1; })), room<uint16_t>(rank, places * hidden),
          room<uint16_t>(rank, size_t(load.tokens) * hidden),
          room(rank, std::vector<int64_t>(load.chosen[rank].begin(), load.chosen[rank].end())),
          room<int64_t>(rank, local_experts * ranks),
          room(rank, std::vector<float>(size_t(load.tokens) * top_k, 1)),
          room<int>(rank, places), room<int>(rank, local_experts)};
      bases[rank] = reinterpret_cast<uint64_t>(of[rank].heap);
    }
    for (int rank = 0; rank < ranks; ++rank) {
      use(rank);
      set_heaps(bases, ranks);
    }
    const int groups = (experts + sms - 1) / sms, warps = 32 / groups * groups;
    const int blocks = (experts + groups - 1) / groups, each = (load.tokens + sms - 1) / sms;
    const int summing = std::max(blocks, (load.tokens + each - 1) / each);
    const int sending = warps * (3 * (32 * 16 * 4 + 16) + hidden / 128 * 4);
    const int receiving = 2 * (3 * (16 + hidden * 2) + hidden * 2 + 3 * (hidden / 128 * 4) * 3);
    dispatch_launch = {blocks, warps * 32, 0, true, false, blocks % 2 == 0 ? 2 : 1};
    combine_launch = {summing, warps * 32, std::max(sending, receiving), true, false, summing % 2 == 0 ? 2 : 1};
  }
  ~DeepEp() override {
    for (int rank = 0; rank < ranks; ++rank) {
      use(rank);
      void* all[10];
      std::memcpy(all, &of[rank], sizeof all);
      static_assert(sizeof all == sizeof(Memory));
      for (void* one : all) CHECK(cudaFree(one));
    }
  }

  ep::LowLatencyBuffer buffer(int rank, int which) const {
    return ep::LowLatencyLayout(of[rank].heap, most, hidden, ranks, experts).buffers[which];
  }
  void dispatch(int rank, cudaStream_t stream) override {
    const Memory& own = of[rank];
    const auto now = buffer(rank, next[rank]);
    const auto clean = buffer(rank, next[rank] ^= 1).clean_meta();
    ll::dispatch(own.packed, nullptr, own.tokens, own.ranges, own.counts, nullptr, nullptr, nullptr,
                 now.dispatch_rdma_recv_data_buffer, now.dispatch_rdma_recv_count_buffer, now.dispatch_rdma_send_buffer,
                 own.rows, own.experts, clean.first, clean.second, load.tokens, hidden, most, top_k, experts, rank,
                 ranks, false, false, false, own.workspace, sms, stream, both);
  }
  void combine(int rank, cudaStream_t stream) override {
    const Memory& own = of[rank];
    auto now = buffer(rank, next[rank]);
    const auto clean = buffer(rank, next[rank] ^= 1).clean_meta();
    ll::combine(own.sums, now.combine_rdma_recv_data_buffer, now.combine_rdma_recv_flag_buffer,
                now.combine_rdma_send_buffer, own.packed, own.experts, own.weights, own.tokens, own.ranges, nullptr,
                nullptr, clean.first, clean.second, load.tokens, hidden, most, top_k, experts, rank, ranks, false,
                own.workspace, sms, stream, both, false);
  }

  void poison(int rank) override {
    use(rank);
    CHECK(cudaMemset(of[rank].packed, 0xff, size_t{local_experts} * ranks * most * row_bytes));
    CHECK(cudaMemset(of[rank].tokens, 0xff, size_t{local_experts} * ranks * most * 4));
    CHECK(cudaMemset(of[rank].sums, 0xff, load.tokens * row_bytes));
    CHECK(cudaDeviceSynchronize());
  }
  void verify(int rank) override {
    const auto ranges = read(rank, of[rank].ranges, local_experts * ranks);
    const auto counts = read(rank, of[rank].counts, local_experts);
    for (int e = 0; e < local_experts; ++e) verify_expert(rank, e, counts[e], &ranges[size_t(e) * ranks]);
    const auto sums = read(rank, of[rank].sums, size_t(load.tokens) * hidden);
    compare(load.rows(rank, [](int) { return top_k; }), sums.data(), "sums");
  }
  // All rows of an expert: those of each source lie together, in any order.
  void verify_expert(int rank, int e, int count, const int64_t* ranges) const {
    const size_t place = size_t(e) * ranks * most;
    const int expert = rank * local_experts + e;
    const auto rows = read(rank, of[rank].packed + place * hidden, size_t(count) * hidden);
    const auto tokens = read(rank, of[rank].tokens + place, count);
    int all = 0;
    for (int source = 0; source < ranks; ++source) {
      std::vector<int> expected;
      for (int token = 0; token < load.tokens; ++token) {
        const int* first = load.choices(source, token);
        if (std::find(first, first + top_k, expert) != first + top_k) expected.push_back(token);
      }
      const int begin = int(ranges[source] >> 32), found = int(ranges[source] & 0xffffffff);
      if (begin < 0 || found != int(expected.size()) || begin + found > count) fail("a wrong range of rows");
      std::vector<int> here(tokens.begin() + begin, tokens.begin() + begin + found);
      for (int i = 0; i < found; ++i) {
        if (here[i] < 0 || here[i] >= load.tokens) fail("a token that there is not");
        compare(load.row(source, here[i], 1), &rows[size_t(begin + i) * hidden], "a received row");
      }
      std::sort(here.begin(), here.end());
      if (here != expected) fail("wrong tokens of an expert");
      all += found;
    }
    if (all != count) fail("a wrong count of rows");
  }
  size_t bytes() const override { return heap_bytes; }
};

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv, [](Rig& rig, const Load& load, int launches) {
    DeepEp peer(load);
    measure(rig, peer, "deepep", load.tokens, launches);
  });
}
