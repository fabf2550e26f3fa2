#include <algorithm>
#include <cstring>

#include "cuda/memory/status.h"
#include "dapple/cuda/memory/device.h"

namespace dapple::cuda {
namespace {

constexpr Bytes kPiece{4LL << 20};
constexpr std::size_t kPieces = 4;

}  // namespace

struct Staging::Piece {
  PinnedMemory memory{kPiece};
  Event last_use;
};

Staging::Staging() = default;

/// Waits until the GPU no longer uses the memory. Errors were reported earlier.
Staging::~Staging() {
  for (const Piece& piece : pieces_) {
    static_cast<void>(cudaEventSynchronize(piece.last_use.handle()));
  }
}

/// Returns the next piece when its previous use has ended.
Staging::Piece& Staging::next_piece() {
  if (pieces_.empty()) pieces_.resize(kPieces);
  current_ = (current_ + 1) % pieces_.size();
  pieces_[current_].last_use.wait();
  return pieces_[current_];
}

void Staging::pass(std::span<const std::byte> from, const Stream& stream, const Enqueue& enqueue) {
  for (std::size_t begin = 0; begin < from.size();) {
    Piece& piece = next_piece();
    const std::size_t size = std::min(piece.memory.bytes().size(), from.size() - begin);
    std::memcpy(piece.memory.bytes().data(), from.data() + begin, size);
    enqueue(piece.memory.bytes().first(size), begin);
    piece.last_use.record(stream);
    begin += size;
  }
}

void Staging::upload(std::span<const std::byte> from, std::byte* to, const Stream& stream) {
  pass(from, stream, [&](std::span<const std::byte> pinned, std::size_t begin) {
    require(cudaMemcpyAsync(to + begin, pinned.data(), pinned.size(), cudaMemcpyHostToDevice,
                            stream.handle()),
            "cudaMemcpyAsync");
  });
}

void Staging::download(const std::byte* from, std::span<std::byte> to, const Stream& stream) {
  while (!to.empty()) {
    Piece& piece = next_piece();
    const std::size_t size = std::min(piece.memory.bytes().size(), to.size());
    require(cudaMemcpyAsync(piece.memory.bytes().data(), from, size, cudaMemcpyDeviceToHost,
                            stream.handle()),
            "cudaMemcpyAsync");
    piece.last_use.record(stream);
    piece.last_use.wait();
    std::memcpy(to.data(), piece.memory.bytes().data(), size);
    to = to.subspan(size);
    from += size;
  }
}

}  // namespace dapple::cuda
