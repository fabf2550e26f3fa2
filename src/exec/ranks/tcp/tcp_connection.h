// One rank's connection with another rank: sends messages and notices, and passes incoming ones to
// a handler. All functions run in the thread that runs the socket's context.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "exec/ranks/tcp/tcp_protocol.h"

namespace dapple::exec {

/// Callbacks of a connection.
struct ConnectionHandler {
  std::function<void(const Frame& frame, HostBytes bytes)> message;
  std::function<void(const Notice& notice)> notice;
  // The other rank has announced that it will close the connection.
  std::function<void(int rank)> leaving;
  // The connection has ended without an announcement.
  std::function<void(int rank)> lost;
  // The other rank has violated the protocol. Nothing more is read.
  std::function<void(int rank)> violation;
};

/// A connection, kept alive by its pending operations.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  /// The handler must outlive the connection.
  Connection(boost::asio::ip::tcp::socket socket, int rank, const ConnectionHandler& handler);

  /// Starts to receive.
  void start();

  /// `bytes` must live until `sent` is called.
  void send(const Frame& frame, std::span<const std::byte> bytes, std::function<void()> sent);
  /// Sends a frame header without a message, ahead of the remaining pieces of messages.
  void send(const FrameHeader& header, std::function<void()> sent = nullptr);

  /// Closes the sending direction; incoming data is still received.
  void close_sending();
  /// Whether the other side has closed the connection as well, or it has failed.
  bool has_ended() const { return has_ended_; }

 private:
  struct ControlFrame {
    FrameHeader header;
    std::function<void()> sent;
  };
  struct Message {
    FrameHeader frame;
    std::span<const std::byte> bytes;
    std::function<void()> sent;
    std::size_t done = 0;
  };
  struct Incoming {
    Frame frame;
    HostBytes bytes;
    std::size_t done = 0;
  };

  void write_next();
  void write_control_frame();
  void write_piece();
  void read_header();
  void read_piece();
  void take_in_header();
  void take_in_frame();
  void deliver();
  void report_violation();
  void end();

  boost::asio::ip::tcp::socket socket_;
  const int rank_;
  const ConnectionHandler& handler_;

  bool is_writing_ = false;
  std::deque<ControlFrame> control_frames_;
  std::deque<Message> messages_;
  // The header of the piece that is being written.
  FrameHeader piece_{};

  // The next header to be read.
  FrameHeader header_{};
  std::optional<Incoming> incoming_;
  bool is_leaving_ = false;
  bool has_ended_ = false;
};

}  // namespace dapple::exec
