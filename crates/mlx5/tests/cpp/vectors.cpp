// The device headers' encoders and decoders against the golden vectors.
//   vectors FILE…   prints one line per vector that differs and how many were compared
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "warpverbs/mlx5/cqe.h"
#include "warpverbs/mlx5/doorbell.h"
#include "warpverbs/mlx5/layout.h"
#include "warpverbs/mlx5/segment.h"
#include "warpverbs/qp.h"

namespace m = wv::mlx5;
using wv::u16;
using wv::u32;
using wv::u64;
using wv::u8;

namespace {

struct Vector {
  std::string name;
  std::vector<std::pair<std::string, std::vector<std::string>>> lines;
  std::vector<u8> bytes;

  const std::vector<std::string>* find(const std::string& key) const {
    for (const auto& line : lines)
      if (line.first == key) return &line.second;
    return nullptr;
  }
  u64 at(const std::string& key) const {
    const auto* values = find(key);
    if (!values) throw "no " + key + " in " + name;
    return std::stoull(values->at(0), nullptr, 0);
  }
};

std::vector<u64> numbers(const std::vector<std::string>& words, int base) {
  std::vector<u64> out;
  for (const auto& word : words) out.push_back(std::stoull(word, nullptr, base));
  return out;
}

std::vector<Vector> read(const char* path) {
  std::ifstream in(path);
  if (!in) throw std::string("cannot open ") + path;
  std::vector<Vector> out;
  std::string text;
  while (std::getline(in, text)) {
    std::istringstream line(text);
    std::string key, word;
    if (!(line >> key) || key[0] == '#') continue;
    std::vector<std::string> values;
    while (line >> word) values.push_back(word);
    if (key == "vector") {
      out.push_back({values.at(0), {}, {}});
    } else if (key == "hex") {
      for (u64 byte : numbers(values, 16)) out.back().bytes.push_back(static_cast<u8>(byte));
    } else if (key != "end") {
      out.back().lines.emplace_back(key, values);
    }
  }
  return out;
}

struct Bytes {
  std::vector<u8> out;

  template <class T>
  void put(const T& value) {
    const auto* p = reinterpret_cast<const u8*>(&value);
    out.insert(out.end(), p, p + sizeof value);
  }
  void pad(size_t to) { out.resize((out.size() + to - 1) / to * to); }
};

void put_inline(Bytes& bytes, const std::vector<u64>& payload) {
  bytes.put(m::inline_header(static_cast<u32>(payload.size())));
  for (u64 byte : payload) bytes.put(static_cast<u8>(byte));
  bytes.pad(16);
}

// Every segment of the vector, by the encoders.
std::vector<u8> segments(const Vector& v) {
  Bytes bytes;
  if (v.find("opcode"))
    bytes.put(m::ctrl(v.at("index"), static_cast<m::opcode>(v.at("opcode")),
                      static_cast<u32>(v.at("qpn")), static_cast<u32>(v.at("ds")),
                      static_cast<u8>(v.at("fm_ce_se")), static_cast<u32>(v.at("imm")),
                      static_cast<u8>(v.at("opmod"))));
  for (const auto& line : v.lines) {
    const std::string& key = line.first;
    if (key == "kind") continue;
    const auto n = numbers(line.second, key == "inline" ? 16 : 0);
    const auto w = [&](int i) { return static_cast<u32>(n.at(i)); };
    if (key == "raddr") bytes.put(m::raddr(n[0], w(1)));
    if (key == "data" && w(1) != 0) bytes.put(m::data(n[0], w(1), w(2)));
    if (key == "data" && w(1) == 0) bytes.put(m::data_terminator());
    if (key == "inline") put_inline(bytes, n);
    // fetch-and-add is told by its compare of 0
    if (key == "atomic" && n[1] != 0) bytes.put(m::atomic_cs(n[1], n[0]));
    if (key == "atomic" && n[1] == 0) bytes.put(m::atomic_fa(n[0]));
    if (key == "masked_fa4") bytes.put(m::masked_fa4(w(0), w(1)));
    if (key == "masked_fa8") bytes.put(m::masked_fa8(n[0], n[1]));
    if (key == "masked_cs4") bytes.put(m::masked_cs4(w(1), w(3), w(0), w(2)));
    if (key == "masked_cs8") {
      bytes.put(m::masked_cs8_data(n[1], n[0]));
      bytes.put(m::masked_cs8_mask(n[3], n[2]));
    }
    if (key == "wait") bytes.put(m::WaitSeg{{}, m::bswap32(w(0)), m::bswap32(w(1))});
    if (key == "next") bytes.put(m::srq_next(static_cast<u16>(n[0])));
  }
  if (v.find("opcode")) {
    bytes.pad(m::wqebb_bytes);
    if (bytes.out.size() != m::wqebbs(static_cast<u32>(v.at("ds"))) * m::wqebb_bytes)
      throw std::string("wqebbs");
  }
  bytes.out.resize(v.bytes.size());
  return bytes.out;
}

// The decoders, on the last 16 bytes of a CQE.
bool cqe_matches(const Vector& v) {
  u64 word;
  u32 syndrome;
  std::memcpy(&word, &v.bytes[v.bytes.size() - 8], 8);
  std::memcpy(&syndrome, &v.bytes[v.bytes.size() - 12], 4);
  const m::CqeTail tail{word};
  bool ok = static_cast<u64>(tail.opcode()) == v.at("cqe_opcode") &&
            tail.wqe_opcode() == v.at("wqe_opcode") && tail.qpn() == v.at("qpn") &&
            tail.wqe_counter() == v.at("wqe_counter") && tail.owner() == v.at("owner") &&
            m::owned_by_software(tail, v.at("owner") << 4, 4) &&
            !m::owned_by_software(tail, (v.at("owner") ^ 1) << 4, 4) && tail.format() == 0 &&
            !m::gives_back(8, 11, 4) && m::gives_back(8, 12, 4) && m::gives_back(11, 20, 4) &&
            m::gives_back(8, 9, 2) && m::gives_back(8, 9, 0);
  if (v.find("solicited")) ok = ok && tail.solicited() == (v.at("solicited") != 0);
  if (v.find("byte_cnt")) {
    u32 byte_cnt, imm;
    std::memcpy(&byte_cnt, &v.bytes[m::cqe_byte_cnt_offset], 4);
    std::memcpy(&imm, &v.bytes[m::cqe_imm_offset], 4);
    ok = ok && m::bswap32(byte_cnt) == v.at("byte_cnt") && m::bswap32(imm) == v.at("imm");
  }
  if (v.find("syndrome")) {
    const m::CqeSyndrome s{syndrome};
    ok = ok && tail.is_error() && s.code() == v.at("syndrome") && s.vendor() == v.at("vendor") &&
         s.hw() == (v.find("hw_syndrome") ? v.at("hw_syndrome") : 0);
  } else {
    ok = ok && !tail.is_error();
  }
  return ok;
}

// ARM word of a CQ's record. Kernels arm no CQ, so the device library has no encoder.
u32 cq_arm(u32 sn, bool solicited_only, u64 ci) {
  return m::bswap32((sn & 3) << 28 | (solicited_only ? 1u << 24 : 0u) |
                    static_cast<u32>(ci & 0xffffff));
}

std::vector<u8> doorbell(const Vector& v, const std::string& kind) {
  Bytes bytes;
  if (kind == "doorbell" && v.find("last_index")) {
    const auto ds = static_cast<u32>(v.at("ds"));
    bytes.put(m::doorbell_last(
        m::ctrl_word0(v.at("last_index"), static_cast<m::opcode>(v.at("opcode")),
                      static_cast<u8>(v.at("opmod"))),
        m::ctrl_word1(static_cast<u32>(v.at("qpn")), ds)));
    if (((v.at("last_index") + m::wqebbs(ds)) & 0xffff) != v.at("next")) bytes.out.clear();
  } else if (kind == "doorbell") {
    bytes.put(m::doorbell_next(v.at("next"), static_cast<u32>(v.at("qpn"))));
  } else if (kind == "qp_dbr") {
    bytes.put(m::dbr_value(v.at("received")));
    bytes.put(m::dbr_value(v.at("sent")));
  } else {
    const auto sn = static_cast<u32>(v.at("sn"));
    const bool solicited_only = v.at("solicited_only") != 0;
    if (kind == "cq_dbr") {
      bytes.put(m::cq_set_ci(v.at("ci")));
      bytes.put(cq_arm(sn, solicited_only, v.at("ci")));
    } else if (kind == "cq_arm") {
      bytes.put(static_cast<u64>(m::bswap32(static_cast<u32>(v.at("cqn")))) << 32 |
                cq_arm(sn, solicited_only, v.at("ci")));
    }
  }
  return bytes.out;
}

bool matches(const Vector& v) {
  const std::string kind = v.find("kind")->at(0);
  if (kind == "send_wqe" || kind == "recv_wqe" || kind == "srq_wqe") return segments(v) == v.bytes;
  if (kind == "cqe" || kind == "err_cqe_end") return cqe_matches(v);
  return doorbell(v, kind) == v.bytes;
}

}  // namespace

static_assert(m::widen(0x1fff0, 0x0002) == 0x20002, "next lap");
static_assert(m::widen(0x1fff0, 0xfff0) == 0x1fff0, "the floor itself");
static_assert(m::collapsed_index(0x10005, 0x10008, 5).some, "in the window");
static_assert(!m::collapsed_index(0x10005, 0x10008, 4).some, "already completed");
static_assert(!m::collapsed_index(0x10005, 0x10008, 8).some, "never published");
static_assert(m::collapsed_index(0xfffe, 0x10008, 1).index == 0x10001, "across 2^16");
static_assert(m::fm_ce_se(m::fm::fence_and_small, m::ce::always, true) == 0x8a, "flags");
static_assert(m::inline_ds(12) == 1 && m::inline_ds(13) == 2, "inline_ds");
static_assert(wv::ErrorWord::of(0x08881304, 0x1f3a).raw == 0x80001f3a08881304ull, "pack");

int main(int argc, char** argv) {
  int compared = 0, wrong = 0;
  for (int i = 1; i < argc; i++) {
    try {
      for (const Vector& v : read(argv[i])) {
        compared++;
        if (!matches(v)) {
          wrong++;
          std::printf("differs: %s in %s\n", v.name.c_str(), argv[i]);
        }
      }
    } catch (const std::string& what) {
      std::printf("%s: %s\n", argv[i], what.c_str());
      return 2;
    }
  }
  std::printf("compared %d\n", compared);
  return wrong ? 1 : 0;
}
