// FlashInfer's one-sided all-to-all (its copy of TensorRT-LLM's kernels) with the tokens of `warpverbs perf ep`:
// rank-major, of each token its row, experts and weights. The combine pulls the rows from where they came: each rank
// gives a row back as it is, so a sum is the row as often as the token has ranks.
#include "rig.h"

#include "tensorrt_llm/common/dataType.h"
#include "tensorrt_llm/kernels/communicationKernels/moeAlltoAllKernels.h"

namespace a2a = tensorrt_llm::kernels::moe_alltoall;

// Threads of a block, as FlashInfer's envUtils.cpp has them, which needs cuBLAS's headers.
namespace tensorrt_llm::common {
static int threads_of(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? 256 : std::atoi(value);
}
int getEnvMoeA2ADispatchBlockSize() { return threads_of("TLLM_MOE_A2A_DISPATCH_BLOCK_SIZE"); }
int getEnvMoeA2ACombineBlockSize() { return threads_of("TLLM_MOE_A2A_COMBINE_BLOCK_SIZE"); }
}  // namespace tensorrt_llm::common

namespace {

using namespace tensorrt_llm::common;

struct Memory {
  uint16_t *rows, *received, *sums;
  int32_t *experts, *received_experts;
  float *weights, *received_weights;
  uint32_t *flag, *dispatched, *combined;
  int *sent, *counter, *counts, *targets, *places;
};

struct FlashInfer : Peer {
  const Load& load;
  Memory of[ranks];

  explicit FlashInfer(const Load& load) : load(load) {
    const size_t count = load.tokens, all = ranks * count;
    for (int rank = 0; rank < ranks; ++rank) {
      const std::vector<float> weights(count * top_k, 1);
      of[rank] = Memory{
          room(rank, load.rows(rank, [](int) { return 1; })), room<uint16_t>(rank, all * hidden),
          room<uint16_t>(rank, count * hidden),
          room(rank, std::vector<int32_t>(load.chosen[rank].begin(), load.chosen[rank].end())),
          room<int32_t>(rank, all * top_k),
          room(rank, weights), room<float>(rank, all * top_k),
          room<uint32_t>(rank, 1), room<uint32_t>(rank, ranks), room<uint32_t>(rank, ranks),
          room<int>(rank, ranks), room<int>(rank, 1), room<int>(rank, ranks),
          room<int>(rank, count * top_k), room<int>(rank, count * top_k)};
    }
    dispatch_launch = {load.tokens, getEnvMoeA2ADispatchBlockSize(), 0, false, true, 1};
    combine_launch = {load.tokens, getEnvMoeA2ACombineBlockSize(), 0, false, true, 1};
  }
  ~FlashInfer() override {
    for (int rank = 0; rank < ranks; ++rank) {
      use(rank);
      void* all[15];
      std::memcpy(all, &of[rank], sizeof all);
      static_assert(sizeof all == sizeof(Memory));
      for (void* one : all) CHECK(cudaFree(one));
    }
  }

  a2a::MoeA2ADispatchParams dispatch_of(int rank, cudaStream_t stream) const {
    const Memory& own = of[rank];
    a2a::MoeA2ADispatchParams params{};
    params.enable_pdl = true;
    params.ep_size = ranks;
    params.ep_rank = rank;
    params.num_experts = experts;
    params.local_num_tokens = params.max_tokens_per_rank = load.tokens;
    params.top_k = top_k;
    params.token_selected_experts = own.experts;
    params.num_payloads = 3;
    params.payloads[0] = {own.rows, 2, hidden};
    params.payloads[1] = {own.experts, 4, top_k};
    params.payloads[2] = {own.weights, 4, top_k};
    params.flag_val = own.flag;
    params.local_token_counter = own.counter;
    params.send_counters = own.sent;
    params.topk_target_ranks = own.targets;
    params.topk_send_indices = own.places;
    for (int to = 0; to < ranks; ++to) {
      params.recv_counters[to] = of[to].counts;
      params.completion_flags[to] = of[to].dispatched;
      params.recv_buffers[to][0] = of[to].received;
      params.recv_buffers[to][1] = of[to].received_experts;
      params.recv_buffers[to][2] = of[to].received_weights;
    }
    params.stream = stream;
    return params;
  }
  a2a::MoeA2ACombineParams combine_of(int rank, cudaStream_t stream) const {
    const Memory& own = of[rank];
    a2a::MoeA2ACombineParams params{};
    params.enable_pdl = true;
    params.ep_size = ranks;
    params.ep_rank = rank;
    params.local_num_tokens = params.max_tokens_per_rank = load.tokens;
    params.top_k = top_k;
    params.output_data = own.sums;
    params.elements_per_token = hidden;
    params.dtype = nvinfer1::DataType::kBF16;
    params.flag_val = own.flag;
    params.topk_target_ranks = own.targets;
    params.topk_send_indices = own.places;
    params.recv_counters = own.counts;
    for (int from = 0; from < ranks; ++from) {
      params.completion_flags[from] = of[from].combined;
      params.recv_buffers[from] = of[from].received;
    }
    params.stream = stream;
    return params;
  }
  void prepare_dispatch(int rank, cudaStream_t stream) override {
    a2a::moe_a2a_prepare_dispatch_launch(dispatch_of(rank, stream));
  }
  void dispatch(int rank, cudaStream_t stream) override { a2a::moe_a2a_dispatch_launch(dispatch_of(rank, stream)); }
  void prepare_combine(int rank, cudaStream_t stream) override {
    a2a::moe_a2a_prepare_combine_launch(combine_of(rank, stream));
  }
  void combine(int rank, cudaStream_t stream) override { a2a::moe_a2a_combine_launch(combine_of(rank, stream)); }

  void poison(int rank) override {
    use(rank);
    const size_t bytes = load.tokens * row_bytes;
    CHECK(cudaMemset(of[rank].received, 0xff, ranks * bytes));
    CHECK(cudaMemset(of[rank].received_experts, 0xff, ranks * load.tokens * top_k * 4));
    CHECK(cudaMemset(of[rank].sums, 0xff, bytes));
    CHECK(cudaDeviceSynchronize());
  }
  // Places are those that the source says it has given: each once, and the rows there are the tokens'.
  void verify(int rank) override {
    const auto received = read(rank, of[rank].received, size_t{ranks} * load.tokens * hidden);
    const auto chosen = read(rank, of[rank].received_experts, size_t{ranks} * load.tokens * top_k);
    const auto counts = read(rank, of[rank].counts, ranks);
    for (int source = 0; source < ranks; ++source) {
      const auto targets = read(source, of[source].targets, size_t(load.tokens) * top_k);
      const auto places = read(source, of[source].places, size_t(load.tokens) * top_k);
      std::vector<bool> taken(load.tokens);
      int sent = 0;
      for (int token = 0; token < load.tokens; ++token) {
        if (load.local(source, token, rank) == 0) continue;
        int place = -1;
        for (int j = token * top_k; j < (token + 1) * top_k; ++j) place = targets[j] == rank ? places[j] : place;
        if (place < 0 || place >= load.tokens || taken[place]) fail("a place is given twice, or none");
        taken[place] = true;
        ++sent;
        const size_t at = size_t(source) * load.tokens + place;
        compare(load.row(source, token, 1), &received[at * hidden], "a received row");
        const int* choices = load.choices(source, token);
        if (!std::equal(choices, choices + top_k, &chosen[at * top_k])) fail("wrong experts of a row");
      }
      if (counts[source] != sent) fail("a wrong count of rows");
    }
    const auto sums = read(rank, of[rank].sums, size_t(load.tokens) * hidden);
    const auto expected = load.rows(rank, [&](int token) {
      int times = 0;
      for (int to = 0; to < ranks; ++to) times += load.local(rank, token, to) != 0;
      return times;
    });
    compare(expected, sums.data(), "sums");
  }
  size_t bytes() const override {
    return size_t{ranks} * load.tokens * (row_bytes + top_k * 8) + size_t(load.tokens) * top_k * 8;
  }
};

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv, [](Rig& rig, const Load& load, int launches) {
    FlashInfer peer(load);
    measure(rig, peer, "flashinfer", load.tokens, launches);
  });
}
