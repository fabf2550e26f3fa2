"""A rank of a job over TCP as somebody else would write it: a second implementation of how ranks
meet, to say what no rank says. Words are of eight bytes, in this machine's order."""

import hashlib
import hmac
import os
import socket
import struct
import time

from checkpoint_file import fingerprint

MAGIC = int.from_bytes(b"dapple-r", "little")
ORDER = 0x0102030405060708
VERSION = 2
WELCOME, UNPROVEN, OTHER_SIZE, NO_SUCH_RANK, TAKEN = range(1, 6)
FRAME, PIECE, NOTICE, LEAVING, PEER_TABLE = range(1, 6)
ARRIVAL_TIME, JOIN, BARRIER_ARRIVAL, BARRIER_RELEASE, HEARTBEAT, FAILURE = range(6)
CALLER, CALLED = 1, 2
SECONDS = 30


def packed(*words):
    return struct.pack(f"={len(words)}Q", *words)


def unpacked(content):
    return struct.unpack(f"={len(content) // 8}Q", content)


def envelope(*words):
    """Nine words, of which the last is the fingerprint of the others."""
    content = packed(*words, *[0] * (8 - len(words)))
    return content + packed(fingerprint(content))


def connected(port):
    """Once somebody listens there."""
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            connection = socket.create_connection(("127.0.0.1", port))
            connection.settimeout(SECONDS)
            return connection
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def received(connection, size):
    content = b""
    while len(content) < size:
        part = connection.recv(size - len(content))
        if not part:
            raise ConnectionError("hung up")
        content += part
    return content


class Peer:
    """Calls rank 0 and proves what it can."""

    def __init__(self, port, rank, size, secret=b"", hello=None, proof=None):
        self.connection = connected(port)
        self.hello = hello or packed(MAGIC, ORDER, VERSION, rank, size, 1234, 0,
                                     *unpacked(os.urandom(32)))
        self.connection.sendall(self.hello)
        self.challenge = received(self.connection, 64)
        self.secret = secret
        self.proof = proof or self.digest(CALLER)
        self.connection.sendall(self.proof)
        answer = received(self.connection, 64)
        self.verdict, self.size, self.host, self.job = unpacked(answer[:32])
        self.is_proven_to = answer[32:] == self.digest(CALLED, answer[:32])

    def digest(self, side, answer=b""):
        transcript = packed(side, 0, 0) + self.hello + self.challenge + answer
        return hmac.new(self.secret, transcript, hashlib.sha256).digest()

    def take_place(self, ranks):
        """Asks for no time, and hears where the others are."""
        self.connection.sendall(packed(0))
        return received(self.connection, 9 * 8 + 3 * 8 + ranks * 24)

    def send(self, *words):
        self.connection.sendall(envelope(*words))

    def close(self):
        self.connection.close()


class Root:
    """Is called as rank 0 by one rank, and answers it. Its clock is ahead of this host's, and the host
    is one that nobody knows."""

    def __init__(self, connection, size, clock_offset):
        self.connection = connection
        hello = received(connection, 88)
        challenge = packed(MAGIC, ORDER, VERSION, 0, *unpacked(os.urandom(32)))
        connection.sendall(challenge)
        received(connection, 32)
        answer = packed(WELCOME, size, 0, 77)
        transcript = packed(CALLED, 0, 0) + hello + challenge + answer
        connection.sendall(answer + hmac.new(b"", transcript, hashlib.sha256).digest())
        while unpacked(received(connection, 8)) != (0,):
            connection.sendall(packed(time.monotonic_ns() + clock_offset))

    def send_peer_table(self, addresses):
        """Addresses are those of the ranks, of three words each."""
        self.connection.sendall(envelope(PEER_TABLE, 24 + len(addresses)) + packed(0, 0, 0) + addresses)

    def received_header(self):
        return unpacked(received(self.connection, 72))
