// One rank's connection with another one: messages and notices out, and what comes in to whoever
// handles it. All of it in the thread that runs the socket's context.
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

struct ConnectionHandler {
  std::function<void(const Frame& frame, HostBytes bytes)> message;
  std::function<void(const Notice& notice)> notice;
  std::function<void(int rank)> leaving;  // it will end the connection
  std::function<void(int rank)> lost;     // it has, without a word
  /// It says what no rank does. Nothing more is read.
  std::function<void(int rank)> nonsense;
};

/// Lives as long as something is under way.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  /// The handler must outlive it.
  Connection(boost::asio::ip::tcp::socket socket, int rank, const ConnectionHandler& handler);

  /// Begins to take in what comes.
  void start();

  /// `bytes` must live until `sent` is called.
  void send(const Frame& frame, std::span<const std::byte> bytes, std::function<void()> sent);
  /// Goes before what is left of messages.
  void send(const FrameHeader& header, std::function<void()> sent = nullptr);

  /// Nothing more leaves from here; what still comes is taken in.
  void close_sending();
  /// Whether the other side has closed, too.
  bool has_ended() const { return has_ended_; }

 private:
  struct Letter {
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
  void write_letter();
  void write_piece();
  void read_envelope();
  void read_piece();
  void take_in_envelope();
  void take_in_frame();
  void deliver();
  void refuse();
  void end();

  boost::asio::ip::tcp::socket socket_;
  const int rank_;
  const ConnectionHandler& handler_;

  bool is_writing_ = false;
  std::deque<Letter> letters_;
  std::deque<Message> messages_;
  FrameHeader piece_{};  // that is being written

  FrameHeader header_{};  // that comes next
  std::optional<Incoming> incoming_;
  bool is_leaving_ = false;
  bool has_ended_ = false;
};

}  // namespace dapple::exec
