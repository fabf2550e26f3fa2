#include "exec/ranks/tcp/tcp_connection.h"

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <cstdint>
#include <new>
#include <utility>

namespace dapple::exec {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr std::size_t kLargestPiece = std::size_t{1} << 20;
/// More than the size of any message; a larger announced size is a violation of the protocol.
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 36;

}  // namespace

Connection::Connection(asio::ip::tcp::socket socket, int rank, const ConnectionHandler& handler)
    : socket_(std::move(socket)), rank_(rank), handler_(handler) {
  socket_.set_option(asio::ip::tcp::no_delay(true));
}

void Connection::start() {
  read_header();
}

void Connection::send(const Frame& frame, std::span<const std::byte> bytes,
                      std::function<void()> sent) {
  messages_.push_back({.frame = header_of(frame), .bytes = bytes, .sent = std::move(sent)});
  write_next();
}

void Connection::send(const FrameHeader& header, std::function<void()> sent) {
  control_frames_.push_back({.header = header, .sent = std::move(sent)});
  write_next();
}

void Connection::write_next() {
  if (is_writing_ || has_ended_) return;
  if (!control_frames_.empty()) {
    write_control_frame();
  } else if (!messages_.empty()) {
    write_piece();
  }
}

void Connection::write_control_frame() {
  is_writing_ = true;
  asio::async_write(socket_, asio::buffer(control_frames_.front().header),
                    [self = shared_from_this()](const error_code& fault, std::size_t) {
                      self->is_writing_ = false;
                      if (fault) return self->end();
                      const std::function<void()> sent =
                          std::move(self->control_frames_.front().sent);
                      self->control_frames_.pop_front();
                      if (sent) sent();
                      self->write_next();
                    });
}

/// The first piece of a message is sent together with its frame header.
void Connection::write_piece() {
  is_writing_ = true;
  Message& message = messages_.front();
  const std::size_t size = std::min(kLargestPiece, message.bytes.size() - message.done);
  piece_ = header_of(HeaderKind::Piece, size);
  const bool is_first = message.done == 0;
  const std::array<asio::const_buffer, 3> buffers{
      is_first ? asio::buffer(message.frame) : asio::const_buffer(),
      size > 0 ? asio::buffer(piece_) : asio::const_buffer(),
      asio::const_buffer(message.bytes.data() + message.done, size)};
  message.done += size;
  asio::async_write(socket_, buffers,
                    [self = shared_from_this()](const error_code& fault, std::size_t) {
                      self->is_writing_ = false;
                      if (fault) return self->end();
                      const Message& written = self->messages_.front();
                      if (written.done == written.bytes.size()) {
                        written.sent();
                        self->messages_.pop_front();
                      }
                      self->write_next();
                    });
}

void Connection::read_header() {
  asio::async_read(socket_, asio::buffer(header_),
                   [self = shared_from_this()](const error_code& fault, std::size_t) {
                     if (fault) return self->end();
                     self->take_in_header();
                   });
}

void Connection::take_in_header() {
  if (!has_right_checksum(header_)) return report_violation();
  switch (kind_of(header_)) {
    case HeaderKind::Frame:
      return take_in_frame();
    case HeaderKind::Piece:
      return read_piece();
    case HeaderKind::Notice: {
      const std::optional<Notice> notice = notice_of(header_, rank_);
      if (!notice) break;
      handler_.notice(*notice);
      return read_header();
    }
    case HeaderKind::Leaving:
      is_leaving_ = true;
      handler_.leaving(rank_);
      return read_header();
    case HeaderKind::PeerTable:  // valid during the rendezvous only
      break;
  }
  report_violation();
}

void Connection::take_in_frame() {
  const std::optional<Frame> frame = frame_of(header_, rank_);
  if (!frame || incoming_ || frame->size > kMostBytes) return report_violation();
  try {
    incoming_.emplace(Incoming{.frame = *frame, .bytes = HostBytes(frame->size)});
  } catch (const std::bad_alloc&) { return report_violation(); }
  if (frame->size == 0) deliver();
  read_header();
}

void Connection::read_piece() {
  const std::size_t size = size_of(header_);
  if (!incoming_ || size == 0 || size > incoming_->bytes.size() - incoming_->done) {
    return report_violation();
  }
  asio::async_read(socket_, asio::buffer(incoming_->bytes.data() + incoming_->done, size),
                   [self = shared_from_this(), size](const error_code& fault, std::size_t) {
                     if (fault) return self->end();
                     self->incoming_->done += size;
                     if (self->incoming_->done == self->incoming_->bytes.size()) self->deliver();
                     self->read_header();
                   });
}

void Connection::deliver() {
  Incoming whole = std::move(*incoming_);
  incoming_.reset();
  handler_.message(whole.frame, std::move(whole.bytes));
}

void Connection::report_violation() {
  handler_.violation(rank_);
}

void Connection::end() {
  if (std::exchange(has_ended_, true)) return;
  if (!is_leaving_) handler_.lost(rank_);
}

void Connection::close_sending() {
  error_code ignored;  // fails if the other side has closed first
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
}

}  // namespace dapple::exec
